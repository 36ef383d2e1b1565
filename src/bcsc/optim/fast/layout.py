"""Where tensors lie in memory, so that a loop can go over them together with their labels."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bcsc.kernels.passes import Pieces
from bcsc.optim.partition import EpochBlocks

LABELS = {torch.uint8: np.uint8, torch.int16: np.int16, torch.int32: np.int32}
PLAIN = frozenset((Tensor, nn.Parameter))  # not a subclass, which may be anything


class Layout:
    """How tensors of one type on the CPU lie in memory: like labels, which fill theirs without gaps."""

    def __init__(self, labels: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.pieces = Pieces([own.numel() for own in labels])
        self._sizes = [own.numel() for own in labels]
        self._strides = [None if own.is_contiguous() else own.stride() for own in labels]
        self._labels = [own.data_ptr() for own in labels]
        self._alike: dict[int, Callable[..., bool]] = {}  # by the number of rows: whether tensors are as others were

    def addresses(self, *rows: Sequence[Tensor | None]) -> Any:
        """Of each parameter a column: where its tensor of every row begins, and its labels.

        None if a tensor is missing, or has not its scalars in the order of the labels.
        """
        tensors: list[Any] = list(chain(*rows))
        is_like_before = self._alike.get(len(rows))
        if is_like_before is None or not is_like_before(*tensors):
            if not self._fits(rows):
                return None
            self._alike[len(rows)] = likeness(tensors)
        begins = [*map(Tensor.data_ptr, tensors), *self._labels]
        return np.array(begins, dtype=np.int64).reshape(len(rows) + 1, len(self._sizes))

    def _fits(self, rows: Sequence[Sequence[Any]]) -> bool:
        return all(
            is_plain(tensor)
            and tensor.dtype == self.dtype
            and tensor.numel() == size
            and (tensor.is_contiguous() if strides is None else tensor.stride() == strides)
            for row in rows
            for tensor, size, strides in zip(row, self._sizes, self._strides, strict=True)
        )


def is_plain(tensor: Any) -> bool:
    """Whether its numbers are in the CPU's memory as they are: not negated when looked at, no zeros from nowhere."""
    is_here = type(tensor) in PLAIN and tensor.layout == torch.strided and tensor.is_cpu
    return is_here and not tensor.is_neg() and not tensor._is_zerotensor()


def likeness(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """A function that says of as many others whether they are of the same kinds, types, shapes and strides.

    To look at every tensor of a small network from Python takes longer than to step it. torch's compiler has a check
    that does it in one call. It is not public, so it is not taken at its word either.
    """
    kind = kind_of_likeness()
    return never if kind is None else new_likeness(kind, tensors)


def never(*_tensors: object) -> bool:
    """Nothing is known of other tensors."""
    return False


def new_likeness(kind: Any, tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """As torch's compiler makes it."""
    sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    check: Callable[..., bool] = kind(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return check


@cache
def kind_of_likeness() -> Any:
    """The compiler's check, if it is there and notices all that matters."""
    with torch.device("cpu"):
        one = torch.ones(3, 2)
        turned, negated = torch.ones(2, 3).t(), torch._neg_view(one)
        others = [None, turned, negated, turned.contiguous().view(2, 3), torch.ones(6), torch.ones(3, 4)[:, ::2]]
        others += [one.double(), one.int(), one.to_sparse(), one.to("meta"), nn.Parameter(one), one.as_subclass(Other)]
        others.append(torch._efficientzerotensor(3, 2))
    try:
        from torch._C._dynamo.guards import TensorGuards

        check = new_likeness(TensorGuards, [one, one])
        notices = check(one + 1, one) and not any(check(one, other) or check(other, one) for other in others)
        return TensorGuards if notices else None
    except Exception:  # it has moved, or is called otherwise by now
        return None


class Other(Tensor):
    """Not a plain tensor."""


def layout_of(blocks: EpochBlocks, numbers: Sequence[int], dtype: torch.dtype) -> Layout:
    """That of tensors like the parameters with these numbers, kept with the blocks."""
    return blocks.derived(
        ("layout", dtype, *numbers), lambda: Layout([blocks.labels[number] for number in numbers], dtype)
    )
