"""Labels that people really gave: the files of CIFAR-10N and CIFAR-100N (Wei et al., ICLR 2022, noisylabels.com)."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bcsc.data.decoders.arrays import check_labels, is_int64
from bcsc.data.decoders.plain_pickle import load_plain, load_plain_dict
from bcsc.errors import BcscError, DataError, check_choice

COARSE = "clean_coarse_label"  # of the 20 superclasses of CIFAR-100


def read_human_labels(path: Path, column: str, clean: Tensor, num_classes: int) -> Tensor:
    """The labels in ``column``, after the file's own clean labels have been found equal to ``clean``."""
    columns = read_label_columns(path)
    reference = COARSE if "coarse" in column else "clean_label"
    if not columns:
        raise DataError(f"{path} has no columns. Give the CIFAR-N file, as in human:CIFAR-10_human.pt:worse_label.")
    check_choice(f"The column of {path}", column, columns)
    if reference not in columns:
        raise DataError(f"{path} has no column {reference!r} that could be compared with the data set.")
    labels, expected = (_column(columns, name, path) for name in (column, reference))
    if not torch.equal(expected, clean):
        hint = " Coarse columns go with cifar100-coarse, fine ones with cifar100." if COARSE in columns else ""
        raise DataError(
            f"{path}: {reference!r} ({len(expected)} labels) is not equal to the training labels of the data set "
            f"({len(clean)} labels). The file belongs to another data set, or to another order of this one.{hint}"
        )
    if len(labels) != len(clean):
        raise DataError(f"{path}: {column!r} has {len(labels)} labels, expected {len(clean)}.")
    return check_labels(labels, num_classes, f"{path}, column {column!r}")


def read_label_columns(path: Path) -> dict[str, Any]:
    """The dictionary that ``torch.save`` wrote, in its zip form or the older one of pickles in a row."""
    if not path.is_file():
        raise DataError(f"There is no file {path}. Give the CIFAR-N file, as in human:CIFAR-10_human.pt:worse_label.")
    try:
        if zipfile.is_zipfile(path):
            return _read_zipped(path)
    except BcscError:
        raise
    except Exception as error:  # a damaged zip file can fail in any way at all
        raise DataError(f"{path} is a damaged zip file ({error}). Remove it and get it again.") from error
    with path.open("rb") as file:
        for _header in ("magic number", "protocol", "system"):
            load_plain(file, path)
        return load_plain_dict(file, path)


def _read_zipped(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if not pickles:
            raise DataError(f"{path} is a zip file, but not one that torch.save wrote.")
        with archive.open(pickles[0]) as member:
            return load_plain_dict(member, path)


def _column(columns: dict[str, Any], name: str, path: Path) -> Tensor:
    """An array or, as the coarse ones of CIFAR-100N are, a list."""
    values = columns[name]
    if isinstance(values, list) and all(map(is_int64, values)):
        return torch.tensor(values, dtype=torch.int64)
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        found = f"one of shape {values.shape}" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
        raise DataError(
            f"{path}: {name!r} must be whole numbers in one dimension, in an array or a list, found {found}."
        )
    return torch.from_numpy(values.astype(np.int64))
