"""The file of a checkpoint: a trainer's state as bytes and back, without running code from it."""

import io
import zipfile
from pathlib import Path
from typing import Any

import torch

from bcsc.errors import CheckpointError


def checkpoint_content(state: dict[str, Any]) -> memoryview:
    """The bytes of a checkpoint. In memory, so that a disk that fills up can say so in words of its own."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getbuffer()


def read_checkpoint(path: Path) -> dict[str, Any]:
    """One checkpoint, its checksums verified."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is None:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            return state
    except Exception as error:  # whatever a damaged or hostile file makes the readers raise
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}).") from error
    raise CheckpointError(f"{path} is damaged (in {damaged}).")
