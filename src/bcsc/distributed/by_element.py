"""Whether a base treats every scalar by itself, so that parts of a tensor can be stepped apart from each other."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from bcsc.optim.bases.trial import (
    generators_of,
    numbers_on,
    ready_to_step,
    seed_generators,
    small_shape,
    step_unnoticed,
    twin_of,
    without_trace,
)
from bcsc.seeding import stream

NUM_STEPS = 6
CLOSE = 1e-5  # rounding in float32, for bases that compute in it whatever they are given


def treats_scalars_apart(base: Optimizer) -> bool:
    """Whether twins of the base step the two halves of flattened tensors as another one steps the tensors whole.

    What it keeps must be tensors and numbers, so that a part of it can be told, and its options must become the same.
    """
    parameters = [p for group in base.param_groups for p in group["params"] if p.requires_grad]
    whole = [numbers_for(p, stream(0, "stand-ins", place)) for place, p in enumerate(parameters)]
    halves = [[own.reshape(1 + NUM_STEPS, -1)[:, half::2] for own in whole] for half in (0, 1)]
    try:
        with without_trace(base):
            together = moves(base, parameters, whole)
            apart = [moves(base, parameters, half) for half in halves]
    except Exception:  # of a base that nobody knows, it may be anything
        return False
    return all(
        is_close(options, together[1])
        and all(is_close(one.flatten()[half::2], other) for one, other in zip(together[0], moved, strict=True))
        for half, (moved, options) in enumerate(apart)
    )


def numbers_for(parameter: Tensor, generator: Generator) -> Tensor:
    """Where a stand-in begins, and gradients; every other one is at right angles to it, as some bases look for that."""
    shape = small_shape(parameter)
    numbers = torch.randn(1 + NUM_STEPS, *shape, generator=generator, dtype=torch.float64, device="cpu")
    start = numbers[0]
    for gradient in numbers[2::2]:
        gradient -= (gradient * start).sum() / start.square().sum() * start
    return numbers.to(numbers_on(parameter.device))


def moves(base: Optimizer, parameters: Sequence[Tensor], numbers: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """How far a twin has moved each stand-in, and the numbers among the options of its groups."""
    seed_generators(generators_of(base))
    stand_ins = [nn.Parameter(own[0].clone()) for own in numbers]
    twin = twin_of(base, dict(zip(map(id, parameters), stand_ins, strict=True)))
    ready_to_step(twin)
    for step in range(1, 1 + NUM_STEPS):
        for p, own in zip(stand_ins, numbers, strict=True):
            p.grad = own[step].clone()
        step_unnoticed(twin)
    for entry in twin.state.values():
        if not all(isinstance(value, Tensor | int | float | None) for value in entry.values()):
            raise TypeError("its state is in other things than tensors and numbers")
    options = [x for group in twin.param_groups for x in group.values() if type(x) in (int, float)]
    moved = [p.detach() - own[0] for p, own in zip(stand_ins, numbers, strict=True)]
    return moved, torch.tensor(options, dtype=torch.float64)


def is_close(one: Tensor, other: Tensor) -> bool:
    """Whether they differ by rounding alone, measured by the largest."""
    largest = CLOSE * one.abs().max() if len(one) else 0
    return one.shape == other.shape and bool(((one - other).abs() <= largest).all())
