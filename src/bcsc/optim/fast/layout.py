"""Where tensors lie in memory, so that a loop can go over them together with their labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bcsc.kernels.passes import Pieces
from bcsc.optim.partition import EpochBlocks

LABELS = {torch.uint8: np.uint8, torch.int16: np.int16, torch.int32: np.int32}
PLAIN = (Tensor, nn.Parameter)  # not a subclass, which may be anything


class Layout:
    """How tensors of one type on the CPU lie in memory: like labels, which fill theirs without gaps."""

    def __init__(self, labels: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.pieces = Pieces([own.numel() for own in labels])
        self._expected = [(own.numel(), None if own.is_contiguous() else own.stride()) for own in labels]
        self._labels = [own.data_ptr() for own in labels]

    def fits(self, tensors: Sequence[Tensor | None]) -> bool:
        """Whether tensors, one for each of the labels, are there and have their scalars in the same order."""
        dtype = self.dtype
        for tensor, (size, strides) in zip(tensors, self._expected, strict=True):
            if (
                tensor is None
                or type(tensor) not in PLAIN
                or tensor.dtype != dtype
                or not tensor.is_cpu
                or tensor.numel() != size
            ):
                return False
            if not (tensor.is_contiguous() if strides is None else tensor.stride() == strides):
                return False
        return True

    def addresses(self, *rows: Sequence[Tensor]) -> Any:
        """Of each parameter a column: where its tensor of every row begins, and its labels."""
        return np.array([*([tensor.data_ptr() for tensor in row] for row in rows), self._labels], dtype=np.int64)


def layout_of(blocks: EpochBlocks, numbers: Sequence[int], dtype: torch.dtype) -> Layout:
    """That of tensors like the parameters with these numbers, made once an epoch."""
    return blocks.derived(
        ("layout", dtype, *numbers), lambda: Layout([blocks.labels[number] for number in numbers], dtype)
    )
