"""The IDX files of MNIST (LeCun, Cortes and Burges, 1998) and of everything that copied its form."""

import gzip
import zlib
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from bcsc.data.decoders.arrays import MOST_BYTES, Arrays, check_labels, find_file, open_file
from bcsc.errors import DataError

NUM_CLASSES = 10
UNSIGNED_BYTE = 0x08


def decode_mnist(folder: Path) -> Arrays:
    """Training and test images with one channel, and their labels."""
    return Arrays(*_decode(folder, "train"), *_decode(folder, "t10k"))


def _decode(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    images = read_idx(folder, f"{part}-images-idx3-ubyte", num_dimensions=3)
    labels = read_idx(folder, f"{part}-labels-idx1-ubyte", num_dimensions=1)
    if len(images) != len(labels):
        raise DataError(f"{folder}: {len(images)} {part} images, but {len(labels)} {part} labels.")
    return images.unsqueeze(1), check_labels(labels.long(), NUM_CLASSES, f"{folder}/{part}-labels-idx1-ubyte")


def read_idx(folder: Path, name: str, num_dimensions: int) -> Tensor:
    """An array of bytes: two zeros, type, number of dimensions, each size as 4 bytes with the highest first, values."""
    where = find_file(folder, name) or folder / name
    try:
        with open_file(folder, name) as file:
            shape = _read_shape(file, num_dimensions, where)
            raw = file.read(prod(shape) + 1)  # and no more, whatever a compressed file unpacks to
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{where} is damaged or cut short ({error}). Remove it and get it again.") from error
    if len(raw) != prod(shape):
        held = "more" if len(raw) > prod(shape) else len(raw)
        raise DataError(f"{where} promises {shape} = {prod(shape)} bytes and holds {held}. Remove it and get it again.")
    return torch.from_numpy(np.frombuffer(raw, np.uint8).reshape(shape).copy())


def _read_shape(file: IO[bytes], num_dimensions: int, where: Path) -> list[int]:
    """The sizes that the header promises."""
    start = file.read(4 + 4 * num_dimensions)
    if start[:4] != bytes([0, 0, UNSIGNED_BYTE, num_dimensions]) or len(start) < 4 + 4 * num_dimensions:
        raise DataError(f"{where} is not an IDX file of bytes in {num_dimensions} dimensions; it starts {start[:4]!r}.")
    shape: list[int] = np.frombuffer(start, ">u4", offset=4).tolist()
    if not 0 < prod(shape) <= MOST_BYTES:
        raise DataError(f"{where} promises {shape} bytes, expected from 1 to {MOST_BYTES} in all. Get it again.")
    return shape
