"""Files that are written whole or not at all, a lock that ends with its process, and where caches are kept."""

import os
import sys
from pathlib import Path
from typing import IO

from bcsc.errors import BcscError

if sys.platform == "win32":
    import msvcrt

    def _take_lock(file: IO[str], *, shared: bool) -> None:
        """Windows has no shared locks of this kind: one who only looks takes it for an instant."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take_lock(file: IO[str], *, shared: bool) -> None:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


class WriteError(BcscError, OSError):
    """A file cannot be written; what was there before is untouched."""


def user_cache() -> Path:
    """The folder for what bcsc may keep between runs: data sets, and what it found out about this machine."""
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"), "bcsc")


def write_whole(path: Path, content: bytes | memoryview, *, keep_as: Path | None = None) -> None:
    """Replace a file in one go: a reader, or a crash, meets the old content or the new, never a part.

    With ``keep_as`` the old file is kept under that name.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if keep_as is not None and path.exists():
            os.replace(path, keep_as)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise WriteError(f"Cannot write {path}: {error.strerror or error}. What was there is kept.") from error


def try_lock(file: IO[str], *, shared: bool = False) -> bool:
    """Lock an open file, if nobody else has; the system unlocks it when it is closed, however its process ends."""
    try:
        _take_lock(file, shared=shared)
    except (BlockingIOError, PermissionError):
        return False
    return True
