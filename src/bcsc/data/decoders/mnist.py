"""The IDX files of MNIST (LeCun, Cortes and Burges, 1998) and of everything that copied its form."""

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bcsc.data.decoders.arrays import Arrays, check_labels, find_file, open_file
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
    where, start = find_file(folder, name) or folder / name, 4 + 4 * num_dimensions
    try:
        with open_file(folder, name) as file:
            raw = file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{where} is damaged or cut short ({error}). Remove it and get it again.") from error
    if raw[:4] != bytes([0, 0, UNSIGNED_BYTE, num_dimensions]) or len(raw) < start:
        raise DataError(f"{where} is not an IDX file of bytes in {num_dimensions} dimensions; it starts {raw[:4]!r}.")
    shape = np.frombuffer(raw, ">u4", num_dimensions, offset=4).tolist()
    if 0 in shape or len(raw) - start != prod(shape):
        raise DataError(
            f"{where} promises {shape} = {prod(shape)} bytes and holds {len(raw) - start}. Remove it and get it again."
        )
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy())
