"""What a mask leaves alone, put back in one pass over memory."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from bcsc.kernels.passes import Pieces, checked, compiled_loops, run_shared
from bcsc.optim.fast.layout import LABELS, Layout, layout_of
from bcsc.optim.partition import EpochBlocks
from bcsc.seeding import stream

BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}  # by the size of a number in bytes


def merge(
    blocks: EpochBlocks,
    block: int,
    numbers: Sequence[int],
    pairs: tuple[Sequence[Tensor], Sequence[Tensor]],
    *,
    zeros_outside: bool,
) -> bool:
    """Copy the second of a pair of tensors to the first outside the block, or inside it and zeros outside.

    The tensors are like the parameters with these numbers. Says whether it was done: to all of them, or to none.
    """
    if torch.compiler.is_compiling() or compiled_loops() is None:
        return False
    alike: dict[torch.dtype, list[tuple[int, Tensor, Tensor]]] = {}
    for number, target, source in zip(numbers, *pairs, strict=True):
        alike.setdefault(target.dtype, []).append((number, target, source))
    todo: list[tuple[Layout, Any, tuple[Tensor, ...]]] = []
    for dtype, some in alike.items():
        own_numbers, targets, sources = zip(*some, strict=True)
        layout = layout_of(blocks, own_numbers, dtype)
        is_known = is_exact(dtype.itemsize, blocks.label_dtype, zeros_outside)
        addresses = layout.addresses(targets, sources) if is_known else None
        if addresses is None:
            return False
        todo.append((layout, addresses, targets))
    for layout, addresses, targets in todo:
        kernel, arguments = merge_call(layout.dtype.itemsize, blocks.label_dtype, block, zeros_outside)
        run_shared(kernel, addresses, layout.pieces, arguments)
        increment_version(targets)
    return True


def merge_call(size: int, label_dtype: torch.dtype, block: int, zeros_outside: bool) -> tuple[Any, tuple[Any, ...]]:
    """The kernel for numbers of so many bytes, and what it is given beside the tensors."""
    loops: Any = compiled_loops()
    number, label = BITS[size], LABELS[label_dtype]
    kernel = loops.merge_kernel(zeros_outside, number.__name__, label.__name__)
    return kernel, ((size, label_dtype.itemsize), label(block), number(0))


@cache
def is_exact(size: int, label_dtype: torch.dtype, zeros_outside: bool) -> bool:
    """Whether the kernel compiles and does on a few numbers what it should."""

    def check(_loops: Any) -> bool:
        generator = stream(0, "numbers for kernels")
        target, source = torch.randint(1, 256, (2, 300 * size), generator=generator, dtype=torch.uint8).clone()
        labels = torch.randint(3, (300,), generator=generator).to(label_dtype)
        inside = (labels == 1).repeat_interleave(size)
        expected = torch.where(inside, source, 0) if zeros_outside else torch.where(inside, target, source)
        addresses = np.array([[x.data_ptr()] for x in (target, source, labels)], dtype=np.int64)
        kernel, arguments = merge_call(size, label_dtype, 1, zeros_outside)
        kernel(addresses, Pieces([300]).rows, 0, 1, *arguments)
        return torch.equal(target, expected)

    return size in BITS and bool(checked(check))
