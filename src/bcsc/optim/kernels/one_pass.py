"""The step of SGD on a block, and putting back outside it, each in one pass over memory.

This is the fast way; ``bcsc.optim.masking`` is the general one, and gives the same bits. Nothing here is trusted: a
kernel is used after it has given, in this process, the bits that torch gives on a few hundred numbers of all kinds.
Where Numba is missing, or cannot compile, or rounds otherwise, the functions say that they did nothing.
"""

import importlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from bcsc.choices import Mask
from bcsc.optim.partition import EpochBlocks
from bcsc.seeding import stream

NUMBERS = {torch.float32: np.float32, torch.float64: np.float64}
INTEGERS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
LABELS = {torch.uint8: np.uint8, torch.int16: np.int16, torch.int32: np.int32}
WIDTHS = (1, 2, 4, 8, 16)  # scalars in a register of torch's fused step; 1 where all are rounded alike
PIECE = 2**16  # scalars; a multiple of every width
FEWEST_TO_SHARE = 2**17  # scalars: below, waking a thread takes longer than the step
SPECIAL = (0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38)


@cache
def kernels() -> ModuleType | None:
    """The compiled loops, if Numba is installed and works."""
    try:
        return importlib.import_module("bcsc.optim.kernels.compiled")
    except Exception:  # not there, or not for this version of numpy, or broken
        return None


class Pass(NamedTuple):
    """One call of a kernel, ready to be made."""

    kernel: Callable[..., None]
    addresses: Any
    pieces: Any
    arguments: tuple[Any, ...]

    def run(self) -> None:
        """Make it, on as many threads as torch has if there is enough to do."""
        num_pieces, num_threads = len(self.pieces), torch.get_num_threads()
        if num_threads == 1 or num_pieces * PIECE < FEWEST_TO_SHARE:
            self.kernel(self.addresses, self.pieces, 0, num_pieces, *self.arguments)
            return
        bounds = [num_pieces * i // num_threads for i in range(num_threads + 1)]
        others = [pool(os.getpid(), num_threads).submit(self._part, *ends) for ends in pairwise(bounds[1:])]
        self._part(*bounds[:2])
        for other in others:
            other.result()

    def _part(self, begin: int, end: int) -> None:
        self.kernel(self.addresses, self.pieces, begin, end, *self.arguments)


@lru_cache(maxsize=1)
def pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    """Threads for all parts of a pass but one; a forked process has none of its parent's."""
    return ThreadPoolExecutor(num_threads - 1, "bcsc-step")


def pieces_of(sizes: Sequence[int]) -> Any:
    """Tensors of these sizes in pieces: the number of the tensor, where the piece begins and where it ends."""
    rows = [(t, start, min(start + PIECE, n)) for t, n in enumerate(sizes) for start in range(0, n, PIECE)]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def step_as_sgd(base: Optimizer, blocks: EpochBlocks, block: int, mask: Mask) -> bool:
    """Make the step if it can be made in one pass, and say whether it was."""
    if type(base) is not SGD or torch.compiler.is_compiling() or kernels() is None or is_watched(base):
        return False
    passes = [sgd_pass(base, group, blocks, block, mask) for group in base.param_groups]
    num_tensors = sum(len(one.addresses) for one in passes if one is not None)
    if None in passes or num_tensors != sum(p.grad is not None for p in blocks.parameters):
        return False
    for one in passes:
        if one is not None:
            one.run()
    # As after any operation in place: a graph that has kept a parameter then knows that it has changed.
    increment_version([p for p in blocks.parameters if p.grad is not None])
    return True


def is_watched(base: Optimizer) -> bool:
    """Whether someone counts on the base's own ``step`` being called: a hook, or a scheduler."""
    hooks = base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
    return bool("step" in vars(base) or hooks or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)


def sgd_pass(base: SGD, group: Mapping[str, Any], blocks: EpochBlocks, block: int, mask: Mask) -> Pass | None:
    """What the step needs of a group, if it is all there and laid out alike."""
    numbers = [group[name] for name in ("lr", "weight_decay", "momentum", "dampening")]
    if not all(type(number) in (int, float) for number in numbers):
        return None
    parameters = [p for p in group["params"] if p.grad is not None]
    if not parameters:
        return Pass(lambda *_: None, (), (), ())
    labels_of = blocks.derived(
        "labels by parameter", lambda: dict(zip(map(id, blocks.parameters), blocks.labels, strict=True))
    )
    rows = [sgd_row(p, base, bool(numbers[2]), labels_of.get(id(p))) for p in parameters]
    dtype = parameters[0].dtype
    if None in rows or any(p.dtype != dtype for p in parameters):
        return None
    decays, has_momentum, fused = bool(numbers[1]), bool(numbers[2]), bool(group["fused"])
    flags = (mask, decays, has_momentum, bool(group["nesterov"]), bool(group["maximize"]), fused)
    width = rounding_width(dtype, blocks.label_dtype, flags)
    if width is None:
        return None
    sizes = tuple(p.numel() for p in parameters)
    pieces = blocks.derived(("pieces", sizes), lambda: pieces_of(sizes))
    return Pass(
        compiled_sgd(flags),
        np.array(rows, dtype=np.int64),
        pieces,
        sgd_arguments(dtype, blocks.label_dtype, block, width, numbers),
    )


def sgd_row(p: Tensor, base: SGD, has_momentum: bool, labels: Tensor | None) -> tuple[int, int, int, int] | None:
    """Where a parameter, its gradient, its momentum and its labels begin, if they are all there and laid out alike."""
    momentum = base.state[p].get("momentum_buffer") if has_momentum else p  # absent before the first step
    if labels is None or momentum is None or p.grad is None or type(p) not in (Tensor, nn.Parameter):
        return None
    if p.dtype not in NUMBERS or not p.is_cpu:
        return None
    if not all(is_laid_out_like(p, other) for other in (p.grad, momentum)) or not has_same_order(p, labels):
        return None
    return p.data_ptr(), p.grad.data_ptr(), momentum.data_ptr(), labels.data_ptr()


def is_laid_out_like(p: Tensor, other: Tensor) -> bool:
    """Whether another tensor has numbers of the same type, in the same order without gaps."""
    return other.dtype == p.dtype and other.is_cpu and other.layout == torch.strided and has_same_order(p, other)


def has_same_order(p: Tensor, other: Tensor) -> bool:
    """Whether two tensors have their scalars in the same order in memory, without gaps."""
    if other.shape != p.shape:
        return False
    if p.is_contiguous():
        return other.is_contiguous()
    return p.is_contiguous(memory_format=torch.channels_last) and other.stride() == p.stride()


Flags = tuple[str, bool, bool, bool, bool, bool]  # the mask; decay, momentum, nesterov, maximize, fused


def compiled_sgd(flags: Flags) -> Callable[..., None]:
    """The kernel for these options."""
    loops: Any = kernels()
    kernel: Callable[..., None] = loops.sgd_kernel(loops.SgdOptions(*flags[:5]))
    return kernel


def sgd_arguments(
    dtype: torch.dtype, label_dtype: torch.dtype, block: int, width: int, numbers: Sequence[float]
) -> tuple[Any, ...]:
    """What a kernel is given beside the tensors; the numbers are lr, weight_decay, momentum and dampening."""
    number, label = NUMBERS[dtype], LABELS[label_dtype]
    rate, decay, momentum, dampening = numbers
    scalars = [number(x) for x in (0.0, -rate, decay, momentum, 1 - dampening)]
    return width, (dtype.itemsize, label_dtype.itemsize), label(block), *scalars


@cache
def rounding_width(dtype: torch.dtype, label_dtype: torch.dtype, flags: Flags) -> int | None:
    """With which width the kernel gives the bits of torch's own step; None if with none, or if it does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = sgd_by_torch(dtype, flags)
            for width in WIDTHS if flags[5] else WIDTHS[:1]:
                if all(map(same_numbers, sgd_by_kernel(dtype, label_dtype, flags, width), expected)):
                    return width
    except Exception:  # Numba may fail in any way, and then the general way is taken
        return None
    return None


def problem(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters, gradients and momenta of all kinds, from which tensors of many sizes are cut."""
    generator = stream(0, "numbers for kernels")
    draw = torch.randn(3, 400, generator=generator, dtype=torch.float64)
    special = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randint(len(SPECIAL), (3, 400), generator=generator)]
    parameters, gradients, momenta = torch.where(torch.rand(3, 400, generator=generator) < 0.1, special, draw).to(dtype)
    return parameters, gradients, momenta


def cut(numbers: Tensor) -> list[Tensor]:
    """Tensors of 1, 2, 3, ... scalars, so that there are all kinds of last ones."""
    return [part.clone() for part in torch.split(numbers, [*range(1, 28), 22])]


EXAMPLE = (0.1, 0.01, 0.9, 0.3)  # lr, weight_decay, momentum, dampening


def example_numbers(flags: Flags) -> tuple[float, float, float, float]:
    """The numbers for these options: Nesterov's momentum takes no dampening."""
    rate, decay, momentum, dampening = EXAMPLE
    return rate, decay * flags[1], momentum * flags[2], dampening * (flags[2] and not flags[3])


def sgd_by_torch(dtype: torch.dtype, flags: Flags) -> list[Tensor]:
    """Parameters and momenta after a step of torch on everything."""
    parameters, gradients, momenta = map(cut, problem(dtype))
    tensors = [nn.Parameter(p) for p in parameters]
    names = ("lr", "weight_decay", "momentum", "dampening")
    options: dict[str, Any] = dict(zip(names, example_numbers(flags), strict=True))
    base = SGD(tensors, nesterov=flags[3], maximize=flags[4], fused=flags[5], **options)
    for p, gradient, momentum in zip(tensors, gradients, momenta, strict=True):
        p.grad = gradient
        base.state[p]["momentum_buffer"] = momentum
    base.step()
    return [*[p.detach() for p in tensors], *(momenta if flags[2] else [])]


def sgd_by_kernel(dtype: torch.dtype, label_dtype: torch.dtype, flags: Flags, width: int) -> list[Tensor]:
    """The same by the kernel, with all scalars in the block."""
    parameters, gradients, momenta = map(cut, problem(dtype))
    labels = [torch.ones_like(p, dtype=label_dtype) for p in parameters]
    rows = zip(parameters, gradients, momenta, labels, strict=True)
    addresses = np.array([[x.data_ptr() for x in row] for row in rows], dtype=np.int64)
    pieces = pieces_of([len(p) for p in parameters])
    arguments = sgd_arguments(dtype, label_dtype, 1, width, example_numbers(flags))
    compiled_sgd(flags)(addresses, pieces, 0, len(pieces), *arguments)
    return [*parameters, *(momenta if flags[2] else [])]


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bits, where neither is NaN; arithmetic may give either NaN."""
    nan = one.isnan()
    both = torch.equal(nan, other.isnan())
    return both and torch.equal(
        torch.where(nan, 0, one).view(torch.uint8), torch.where(nan, 0, other).view(torch.uint8)
    )
