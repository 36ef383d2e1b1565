"""The step of SGD on a block in one pass over memory. ``bcsc.optim.masking`` is the general way, with the same bits."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from bcsc.choices import Mask
from bcsc.kernels.passes import Pieces, checked, compiled_loops, run_shared, same_numbers
from bcsc.optim.fast.layout import LABELS, Layout, layout_of
from bcsc.optim.partition import EpochBlocks
from bcsc.seeding import stream

NUMBERS = {torch.float32: np.float32, torch.float64: np.float64}
WIDTHS = (1, 2, 4, 8, 16)  # scalars in a register of torch's fused step; 1 where all are rounded alike
SPECIAL = (0.0, -0.0, 1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38)


class Flags(NamedTuple):
    """What a kernel is chosen by."""

    mask: Mask
    decays: bool
    has_momentum: bool
    nesterov: bool
    maximize: bool
    fused: bool


class Call(NamedTuple):
    """A kernel with what it is given."""

    kernel: Any
    addresses: Any
    pieces: Pieces
    arguments: tuple[Any, ...]


def step_as_sgd(base: Optimizer, blocks: EpochBlocks, block: int, mask: Mask) -> bool:
    """Make the step if it can be made in one pass, and say whether it was."""
    if type(base) is not SGD or torch.compiler.is_compiling() or compiled_loops() is None or is_watched(base):
        return False
    calls, moved = [], 0
    for group in base.param_groups:
        parameters = [p for p in group["params"] if p.grad is not None]
        if parameters:
            call = sgd_call(base, group, parameters, blocks, (mask, block))
            if call is None:
                return False
            calls.append(call)
            moved += len(parameters)
    having = [p for p in blocks.parameters if p.grad is not None]
    if moved != len(having):  # some are in two groups
        return False
    for call in calls:
        run_shared(*call)
    # As after any operation in place: a graph that has kept a parameter then knows that it has changed.
    increment_version(having)
    return True


def is_watched(base: Optimizer) -> bool:
    """Whether someone counts on the base's own ``step`` being called: a hook, or a scheduler."""
    hooks = base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
    return bool("step" in vars(base) or hooks or _global_optimizer_pre_hooks or _global_optimizer_post_hooks)


def sgd_call(
    base: SGD, group: Mapping[str, Any], parameters: Sequence[Tensor], blocks: EpochBlocks, masked: tuple[Mask, int]
) -> Call | None:
    """What the step needs of a group, if it is all there and laid out alike."""
    numbers = [group[name] for name in ("lr", "weight_decay", "momentum", "dampening")]
    number_of = blocks.derived("number by parameter", lambda: {id(p): i for i, p in enumerate(blocks.parameters)})
    if parameters[0].dtype not in NUMBERS or any(type(number) not in (int, float) for number in numbers):
        return None
    layout = layout_of(blocks, [number_of[id(p)] for p in parameters], parameters[0].dtype)
    (mask, block), (_, decay, momentum, _) = masked, numbers
    flags = Flags(mask, decay != 0, momentum != 0, group["nesterov"], group["maximize"], bool(group["fused"]))
    width = rounding_width(layout.dtype, blocks.label_dtype, flags)
    tensors = sgd_tensors(base, parameters, layout, flags)
    if width is None or tensors is None:
        return None
    return Call(
        compiled_sgd(layout.dtype, blocks.label_dtype, flags),
        layout.addresses(*tensors),
        layout.pieces,
        sgd_arguments(layout.dtype, blocks.label_dtype, block, width, numbers),
    )


def sgd_tensors(
    base: SGD, parameters: Sequence[Tensor], layout: Layout, flags: Flags
) -> tuple[Sequence[Tensor], ...] | None:
    """The parameters, their gradients and their momenta, if they are all laid out alike."""
    gradients = [p.grad for p in parameters]
    momenta = parameters
    if flags.has_momentum:
        momenta = [base.state[p].get("momentum_buffer") for p in parameters]  # absent before the first step
    fits = layout.fits(parameters) and layout.fits(gradients) and (momenta is parameters or layout.fits(momenta))
    return (parameters, gradients, momenta) if fits else None  # type: ignore[return-value]


def compiled_sgd(dtype: torch.dtype, label_dtype: torch.dtype, flags: Flags) -> Any:
    """The kernel for these types and options."""
    loops: Any = compiled_loops()
    return loops.sgd_kernel(loops.SgdOptions(*flags[:5]), NUMBERS[dtype].__name__, LABELS[label_dtype].__name__)


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

    def check(_loops: Any) -> int | None:
        expected = sgd_by_torch(dtype, flags)
        for width in WIDTHS if flags.fused else WIDTHS[:1]:
            if all(map(same_numbers, sgd_by_kernel(dtype, label_dtype, flags, width), expected)):
                return width
        return None

    return checked(check)


class Problem(NamedTuple):
    """Tensors of 1, 2, 3, ... numbers of all kinds, so that there are all kinds of last ones; half are in the block."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    momenta: list[Tensor]
    labels: list[Tensor]


def example(dtype: torch.dtype, label_dtype: torch.dtype) -> Problem:
    """Always the same numbers."""
    generator = stream(0, "numbers for kernels")
    draw = torch.randn(3, 400, generator=generator, dtype=torch.float64)
    special = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randint(len(SPECIAL), (3, 400), generator=generator)]
    numbers = torch.where(torch.rand(3, 400, generator=generator) < 0.1, special, draw).to(dtype)
    labels = torch.randint(2, (400,), generator=generator).to(label_dtype)
    return Problem(*([x.clone() for x in torch.split(all_of, [*range(1, 28), 22])] for all_of in (*numbers, labels)))


EXAMPLE = (0.1, 0.01, 0.9, 0.3)  # lr, weight_decay, momentum, dampening


def example_numbers(flags: Flags) -> tuple[float, float, float, float]:
    """The numbers for these options: Nesterov's momentum takes no dampening."""
    rate, decay, momentum, dampening = EXAMPLE
    has_dampening = flags.has_momentum and not flags.nesterov
    return rate, decay * flags.decays, momentum * flags.has_momentum, dampening * has_dampening


def sgd_by_torch(dtype: torch.dtype, flags: Flags) -> list[Tensor]:
    """Parameters and momenta after a step of torch, masked in so many words."""
    parameters, gradients, momenta, labels = example(dtype, torch.uint8)
    inside = [own == 1 for own in labels]
    tensors = [nn.Parameter(p.clone()) for p in parameters]
    names = ("lr", "weight_decay", "momentum", "dampening")
    options: dict[str, Any] = dict(zip(names, example_numbers(flags), strict=True))
    base = SGD(tensors, nesterov=flags.nesterov, maximize=flags.maximize, fused=flags.fused, **options)
    for p, gradient, momentum, here in zip(tensors, gradients, momenta, inside, strict=True):
        p.grad = torch.where(here, gradient, 0) if flags.mask == "gradient" else gradient
        base.state[p]["momentum_buffer"] = momentum.clone()
    base.step()
    after = [p.detach() for p in tensors]
    if flags.mask != "gradient":
        after = list(map(torch.where, inside, after, parameters))
    learned = [base.state[p]["momentum_buffer"] for p in tensors] if flags.has_momentum else []
    if flags.mask == "all" and learned:
        learned = list(map(torch.where, inside, learned, momenta))
    return [*after, *learned]


def sgd_by_kernel(dtype: torch.dtype, label_dtype: torch.dtype, flags: Flags, width: int) -> list[Tensor]:
    """The same by the kernel."""
    problem = example(dtype, label_dtype)
    addresses = np.array([[x.data_ptr() for x in row] for row in problem], dtype=np.int64)
    pieces = Pieces([len(p) for p in problem.parameters])
    arguments = sgd_arguments(dtype, label_dtype, 1, width, example_numbers(flags))
    compiled_sgd(dtype, label_dtype, flags)(addresses, pieces.rows, 0, len(pieces.rows), *arguments)
    return [*problem.parameters, *(problem.momenta if flags.has_momentum else [])]
