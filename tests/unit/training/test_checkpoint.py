"""Files are whole or untouched; of two checkpoints the good one is found; nothing in them runs."""

import errno
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from bcsc.files import WriteError, write_whole
from bcsc.training import checkpoint
from bcsc.training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path) == (None, None)
    for number in range(3):
        save_checkpoint(tmp_path, {"number": number})
    assert load_checkpoint(tmp_path) == ({"number": 2}, None)
    assert checkpoint.read_checkpoint(tmp_path / checkpoint.PREVIOUS) == {"number": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == [checkpoint.PREVIOUS, checkpoint.NEWEST]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_newest_gives_way_to_the_one_before_and_says_so(tmp_path: Path, damage: str) -> None:
    for number in range(2):
        save_checkpoint(tmp_path, {"number": number, "weights": torch.full((1000,), float(number))})
    newest = tmp_path / checkpoint.NEWEST
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[content.index(torch.full((2,), 1.0).numpy().tobytes()) + 100] ^= 1
    newest.write_bytes({"truncate": content[: len(content) // 2], "flip": content, "empty": b""}[damage])
    state, complaint = load_checkpoint(tmp_path)
    assert state["number"] == 0
    assert "checkpoint.pt" in complaint
    assert "Going on from checkpoint.previous.pt" in complaint


def test_the_good_one_survives_a_crash_in_the_save_after_the_fallback(tmp_path: Path, monkeypatch) -> None:
    for number in (1, 2):
        save_checkpoint(tmp_path, {"number": number})
    (tmp_path / checkpoint.NEWEST).write_bytes(b"damaged")
    assert load_checkpoint(tmp_path)[0] == {"number": 1}
    checkpoint.set_damaged_aside(tmp_path)
    replace = os.replace

    def crash(source: Path, target: Path) -> None:
        if Path(target).name == checkpoint.NEWEST:
            raise OSError(errno.EIO, "crash")
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(WriteError, match="crash"):
        save_checkpoint(tmp_path, {"number": 3})
    assert load_checkpoint(tmp_path)[0] == {"number": 1}
    assert (tmp_path / checkpoint.DAMAGED).read_bytes() == b"damaged"


def test_two_damaged_ones_are_an_error_that_names_the_way_out(tmp_path: Path) -> None:
    for name in (checkpoint.NEWEST, checkpoint.PREVIOUS):
        (tmp_path / name).write_bytes(b"no checkpoint")
    with pytest.raises(CheckpointError, match="cannot be read.*--restart"):
        load_checkpoint(tmp_path)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


def test_a_hostile_checkpoint_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    torch.save({"model": Hostile(mark)}, tmp_path / checkpoint.NEWEST)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path)
    assert not mark.exists()
    with zipfile.ZipFile(tmp_path / checkpoint.NEWEST) as archive:
        pickle.loads(archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl"))))
    assert mark.exists()  # so the file was really hostile


@pytest.mark.parametrize(
    "write", [lambda p: write_whole(p / "checkpoint.pt", b"new"), lambda p: save_checkpoint(p, {})]
)
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write) -> None:
    save_checkpoint(tmp_path, {"number": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="No space left on device.*(untouched|kept)"):
        write(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
