"""Some steps by the fast way and by the general one."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import bcsc
from bcsc.choices import GRANULARITIES, MASKS
from bcsc.optim import block_cyclic
from bcsc.optim.fast import one_pass

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-42, 3e38])

problems = st.fixed_dictionaries(
    {
        "shapes": st.lists(st.lists(st.integers(1, 7), max_size=4), min_size=1, max_size=4),
        "dtype": st.sampled_from([torch.float32, torch.float64]),
        "layout": st.sampled_from(["plain", "channels_last", "transposed"]),
        "mask": st.sampled_from(MASKS),
        "granularity": st.sampled_from(GRANULARITIES),
        "seed": st.integers(0, 1000),
    }
)


class Outcome(NamedTuple):
    """Parameters, their state, and whether the fast way was taken, at each step."""

    parameters: list[Tensor]
    states: list[dict]
    taken: list[bool]


def numbers(shape: list[int], dtype: torch.dtype, layout: str, seed: int) -> Tensor:
    """Numbers of all kinds, in one of several layouts."""
    generator = torch.Generator().manual_seed(seed)
    pick = torch.randint(len(SPECIAL), shape, generator=generator)
    ordinary = torch.randn(shape, generator=generator, dtype=torch.float64)
    mixed = torch.where(torch.rand(shape, generator=generator) < 0.05, SPECIAL[pick].double(), ordinary).to(dtype)
    if layout == "transposed" and shape:
        return mixed.transpose(0, -1).contiguous().transpose(0, -1)
    return mixed.to(memory_format=torch.channels_last) if layout == "channels_last" and len(shape) == 4 else mixed


def assert_same(one: Tensor, other: Tensor) -> None:
    """The same bits; arithmetic may give either NaN, so any equals any."""
    one, other = one.detach(), other.detach()
    assert torch.equal(one.isnan(), other.isnan())
    cleaned = [torch.where(x.isnan(), 0, x).contiguous().flatten().view(torch.uint8) for x in (one, other)]
    assert torch.equal(*cleaned)


def assert_same_outcome(one: Outcome, other: Outcome) -> None:
    """The same parameters, and the same state under the same names."""
    for mine, theirs in zip(one.parameters, other.parameters, strict=True):
        assert_same(mine, theirs)
    for mine, theirs in zip(one.states, other.states, strict=True):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            assert (value is None) == (theirs[name] is None)
            if value is not None:
                assert_same(value, theirs[name])


def trained(build: Callable, problem: dict, *, fast: bool, num_steps: int = 5) -> Outcome:
    """Train numbers of all kinds, the first in a group of its own, by one way; gradients stay as they are."""
    drawn, seed = [(shape, problem["dtype"], problem["layout"]) for shape in problem["shapes"]], problem["seed"]
    parameters = [nn.Parameter(numbers(*each, seed + i)) for i, each in enumerate(drawn)]
    groups = [{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:], "lr": 0.03}]
    base = build(groups if len(parameters) > 1 else parameters)
    setup = {name: problem[name] for name in ("mask", "granularity")}
    optimizer = bcsc.BlockCyclic(base, min(3, len(parameters)), **setup)
    taken: list[bool] = []
    way, block_cyclic.step_in_one_pass = (
        block_cyclic.step_in_one_pass,
        ((lambda *a: taken.append(one_pass.step_in_one_pass(*a)) or taken[-1]) if fast else lambda *_: False),
    )
    try:
        for step in range(num_steps):
            for i, (p, each) in enumerate(zip(parameters, drawn, strict=True)):
                p.grad = numbers(*each, seed + 100 * (step + 1) + i)
            gradients = [p.grad.clone() for p in parameters]
            optimizer.step()
            for p, gradient in zip(parameters, gradients, strict=True):
                assert_same(p.grad, gradient)
    finally:
        block_cyclic.step_in_one_pass = way
    return Outcome(parameters, [dict(optimizer.state.get(p, {})) for p in parameters], taken)


def steps_of(optimizer: bcsc.BlockCyclic, p: Tensor, num_steps: int = 3) -> Tensor:
    """A parameter after some steps."""
    for step in range(num_steps):
        p.grad = torch.full_like(p, 1.0 + step)
        optimizer.step()
    return p.detach()


def is_taken(base: torch.optim.Optimizer, p: Tensor, mask: str = "update") -> bool:
    """Whether the fast way can be taken after some steps."""
    optimizer = bcsc.BlockCyclic(base, 2, mask=mask)
    steps_of(optimizer, p)
    return one_pass.step_in_one_pass(base, optimizer.epoch_blocks(), 0, mask)
