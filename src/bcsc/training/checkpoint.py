"""Checkpoints, of which the last two are kept."""

import os
import zipfile
from pathlib import Path
from typing import Any

import torch

from bcsc.errors import BcscError
from bcsc.files import WriteError

NEWEST, PREVIOUS, DAMAGED = "checkpoint.pt", "checkpoint.previous.pt", "checkpoint.damaged.pt"


class CheckpointError(BcscError, RuntimeError):
    """A checkpoint cannot be read, or belongs to something else."""


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Make ``state`` the newest checkpoint; the one before it is kept."""
    partial = folder / ".checkpoint.partial"
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if (folder / NEWEST).exists():
            os.replace(folder / NEWEST, folder / PREVIOUS)
        os.replace(partial, folder / NEWEST)
    except (OSError, RuntimeError) as error:  # torch's writer reports a full disk as a RuntimeError
        partial.unlink(missing_ok=True)
        raise WriteError(f"Cannot save a checkpoint in {folder}: {error}. The last good one is kept.") from error


def load_checkpoint(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The newest readable checkpoint, without running code from it, and a word on what was wrong with a newer one."""
    complaints = []
    for name in (NEWEST, PREVIOUS):
        path = folder / name
        if path.exists():
            try:
                state = read_checkpoint(path)
            except CheckpointError as error:
                complaints.append(str(error))
            else:
                return state, f"{complaints[0]} Going on from {name}." if complaints else None
    if complaints:
        raise CheckpointError(f"{' '.join(complaints)} Begin anew with --restart, which keeps this folder aside.")
    return None, None


def set_damaged_aside(folder: Path) -> None:
    """Rename a damaged newest checkpoint, so that the next one saved does not take the place of the good one before."""
    os.replace(folder / NEWEST, folder / DAMAGED)


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
