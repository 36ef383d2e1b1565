"""What every decoder returns, and how a data file is found and opened."""

import gzip
from pathlib import Path
from typing import IO, NamedTuple, cast

from torch import Tensor

from bcsc.errors import DataError

MOST_BYTES = 2**28  # of one file, unpacked: the largest, CIFAR-100's for training, has 155 million


class Arrays(NamedTuple):
    """A whole data set: images as uint8 N x C x H x W, labels as int64."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def find_file(folder: Path, name: str) -> Path | None:
    """The file, or the same file compressed by gzip, or nothing."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def open_file(folder: Path, name: str) -> IO[bytes]:
    """The file's own bytes, unpacked if it is stored compressed."""
    path = find_file(folder, name)
    if path is None:
        raise DataError(f"There is no {name} (or {name}.gz) in {folder}.")
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def is_int64(value: object) -> bool:
    """Whether it is a whole number that fits into eight bytes."""
    return type(value) is int and -(2**63) <= value < 2**63


def check_labels(labels: Tensor, num_classes: int, where: str) -> Tensor:
    """``labels`` if each is a class; the message names the first that is not."""
    wrong = ((labels < 0) | (labels >= num_classes)).nonzero()
    if len(wrong):
        raise DataError(
            f"{where}: label {int(labels[wrong[0, 0]])} at position {int(wrong[0, 0])} is not one of the "
            f"{num_classes} classes 0 to {num_classes - 1}. The file is damaged or belongs to another data set."
        )
    return labels
