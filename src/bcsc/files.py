"""Files that are written whole or not at all."""

import os
from pathlib import Path

from bcsc.errors import BcscError


class WriteError(BcscError, OSError):
    """A file cannot be written; what was there before is untouched."""


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
