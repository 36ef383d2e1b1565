"""The IDX files of MNIST (LeCun, Cortes and Burges, 1998) and of everything that copied its form."""

import gzip
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from bcsc.data.decoders.arrays import MOST_BYTES, Arrays, check_labels, find_file, open_file
from bcsc.data.source import Download, Source
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


def _idx_files(url: str, compressed: Mapping[str, str]) -> tuple[Download, ...]:
    return tuple(Download(f"{url}/{name}.gz", md5) for name, md5 in compressed.items())


# md5 of the compressed files as distributed, and of what is in them; torchvision knows the same.
_MNIST_COMPRESSED = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
_MNIST_UNPACKED = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
# https://github.com/zalandoresearch/fashion-mnist
_FASHION_COMPRESSED = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
DIGIT_NAMES = tuple("0123456789")
CONFUSED_DIGITS = {7: 1, 2: 7, 3: 8, 5: 6, 6: 5}

# The tests recompute mean and std from the real files.
MNIST = Source(
    name="mnist",
    title="MNIST",
    folder="MNIST/raw",
    files={name: (md5, _MNIST_UNPACKED[name]) for name, md5 in _MNIST_COMPRESSED.items()},
    downloads=_idx_files("https://ossci-datasets.s3.amazonaws.com/mnist", _MNIST_COMPRESSED),
    decode=decode_mnist,
    channels=1,
    size=28,
    class_names=DIGIT_NAMES,
    train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    mean=(0.1307,),
    std=(0.3081,),
    confused_with=CONFUSED_DIGITS,
)
# Mean and std are those in general use: the tests have no files to recompute them from.
FASHION_MNIST = Source(
    name="fashion-mnist",
    title="Fashion-MNIST",
    folder="FashionMNIST/raw",
    files={name: (md5,) for name, md5 in _FASHION_COMPRESSED.items()},
    downloads=_idx_files(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion", _FASHION_COMPRESSED
    ),
    decode=decode_mnist,
    channels=1,
    size=28,
    class_names=(
        "T-shirt/top",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "ankle boot",
    ),
    train_counts=(6000,) * 10,
    test_counts=(1000,) * 10,
    mean=(0.2860,),
    std=(0.3530,),
)
