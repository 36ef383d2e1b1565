"""The allocator of a process that trains."""

import ctypes
import sys

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Let the process keep what torch frees, for the next step to use; says whether the C library can.

    glibc gives large blocks back to the system at once and gets them anew, zeroed page by page, in the next step: tens
    of thousands of page faults per batch of a larger network. For processes of our own, as it holds until they end.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))
