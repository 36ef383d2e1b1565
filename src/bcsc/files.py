"""Files that are written whole or not at all, and the folder for what can be had again."""

import os
from pathlib import Path

from bcsc.errors import BcscError


class WriteError(BcscError, OSError):
    """A file cannot be written; what was there before is untouched."""


def user_cache() -> Path:
    """The folder for what bcsc may keep between runs: data sets, and what it found out about this machine."""
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"), "bcsc")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one go: a reader, or a crash, meets the old content or the new, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise WriteError(f"Cannot write {path}: {error.strerror or error}. What was there is untouched.") from error
