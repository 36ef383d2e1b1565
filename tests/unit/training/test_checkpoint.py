"""A checkpoint is read as it was written, and nothing in it runs."""

import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from bcsc.errors import CheckpointError
from bcsc.training.checkpoint import checkpoint_content, read_checkpoint


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(checkpoint_content({"number": 1, "weights": torch.arange(3.0)}))
    state = read_checkpoint(tmp_path / "checkpoint.pt")
    assert (state["number"], state["weights"].tolist()) == (1, [0.0, 1.0, 2.0])


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_damage_is_noticed(tmp_path: Path, damage: str) -> None:
    content = bytearray(checkpoint_content({"weights": torch.full((1000,), 1.0)}))
    if damage == "flip":
        content[content.index(torch.full((2,), 1.0).numpy().tobytes()) + 100] ^= 1
    path = tmp_path / "checkpoint.pt"
    path.write_bytes({"truncate": content[: len(content) // 2], "flip": content, "empty": b""}[damage])
    with pytest.raises(CheckpointError, match=f"{path} (cannot be read|is damaged)"):
        read_checkpoint(path)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


def test_a_hostile_checkpoint_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "it-ran"
    torch.save({"model": Hostile(mark)}, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_checkpoint(tmp_path / "checkpoint.pt")
    assert not mark.exists()
    with zipfile.ZipFile(tmp_path / "checkpoint.pt") as archive:
        pickle.loads(archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl"))))
    assert mark.exists()  # so the file was really hostile
