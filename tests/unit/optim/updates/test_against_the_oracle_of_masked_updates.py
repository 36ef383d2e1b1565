"""Masked updates against scalar loops: equal to 1e-12, as sums are taken in another order."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bcsc
from bcsc.choices import GRANULARITIES
from bcsc.optim.partition import draw_blocks, unit_shape
from bcsc.optim.sampler import draw_shuffles
from tests.oracles import masked_updates
from tests.oracles.algorithm1 import tanh_regression

NUM_SAMPLES, NUM_INPUTS, BATCH_SIZE, SEED, EPOCHS = 23, 7, 5, 3, 4
SHAPES = [(1, NUM_INPUTS), (1,)]
METHODS = ["one-pass", "skip-update", "magma"]

generator = torch.Generator().manual_seed(0)
INPUTS = torch.randn(NUM_SAMPLES, NUM_INPUTS, generator=generator, dtype=torch.float64)
TARGETS = torch.randn(NUM_SAMPLES, generator=generator, dtype=torch.float64)
START = torch.randn(NUM_INPUTS + 1, generator=generator, dtype=torch.float64)

SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
ADAMW = {"lr": 0.02, "betas": (0.8, 0.95), "weight_decay": 0.3}
BASES: dict[str, tuple[Callable[..., torch.optim.Optimizer], Callable[[], masked_updates.Base]]] = {
    "SGD": (lambda p: torch.optim.SGD(p, **SGD), lambda: masked_updates.sgd(**SGD)),
    "AdamW": (lambda p: torch.optim.AdamW(p, **ADAMW), lambda: masked_updates.adamw(**ADAMW)),
}


def library(method: str, base: str, num_blocks: int, granularity: str, **options: object) -> Tensor:
    """The parameters after some epochs of the public API in a plain training loop."""
    model = nn.Linear(NUM_INPUTS, 1, dtype=torch.float64)
    nn.utils.vector_to_parameters(START.clone(), model.parameters())
    if options.pop("exclude_bias", False):
        options["exclude"] = [model.bias]
    optimizer, sampler = bcsc.build_method(
        method,
        BASES[base][0](model.parameters()),
        num_samples=NUM_SAMPLES,
        batch_size=BATCH_SIZE,
        num_blocks=num_blocks,
        seed=SEED,
        granularity=granularity,
        **options,
    )
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_sampler=sampler)
    for epoch in range(EPOCHS):
        optimizer.set_epoch(epoch)
        sampler.set_epoch(epoch)
        for x, y in loader:
            (torch.tanh(model(x).flatten()) - y).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def units_of(shapes: list[tuple[int, ...]], granularity: str) -> list[list[int]]:
    """The scalars of every unit, in the order of the labels."""
    units, first = [], 0
    for shape in shapes:
        count, size = math.prod(unit_shape(shape, granularity)), math.prod(shape)
        units += torch.arange(first, first + size).view(count, -1).tolist()
        first += size
    return units


def oracle(
    method: str, base: str, num_blocks: int, granularity: str, *, redraw: int | None = None, exclude_bias: bool = False
) -> Tensor:
    """The same by scalar loops, with the units that the library draws."""
    shapes = SHAPES[:1] if exclude_bias else SHAPES
    w, units = START.tolist(), units_of(shapes, granularity)
    gradient = tanh_regression(INPUTS.tolist(), TARGETS.tolist())
    propose, magma = BASES[base][1](), masked_updates.Magma()
    independent = method != "one-pass"
    every = 1 if independent else redraw or num_blocks
    for epoch in range(EPOCHS):
        shuffle = draw_shuffles(NUM_SAMPLES, 1, SEED, epoch)[0].tolist()
        for step in range(-(-NUM_SAMPLES // BATCH_SIZE)):
            g = gradient(w, shuffle[step * BATCH_SIZE : (step + 1) * BATCH_SIZE])
            drawn = draw_blocks(
                shapes,
                num_blocks,
                granularity=granularity,
                seed=SEED,
                epoch=epoch,
                draw=step // every,
                balanced=not independent,
            )
            moves = (torch.cat([labels.flatten() for labels in drawn]) == step % num_blocks).tolist()
            scores = magma.learn(g, units) if method == "magma" else [float(num_blocks)] * len(units)
            factors = [score if moving else 0.0 for score, moving in zip(scores, moves, strict=True)]
            w = masked_updates.masked_step(w, g, propose, units, factors)
    return torch.tensor(w, dtype=torch.float64)


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert (one - START).abs().max() > 0.05


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("num_blocks", [1, 2])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_equals_its_loops(method: str, base: str, num_blocks: int, granularity: str) -> None:
    case = (method, base, num_blocks, granularity)
    assert_same(library(*case), oracle(*case))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", METHODS)
def test_what_is_excluded_moves_at_every_step_and_no_further(method: str, base: str) -> None:
    assert_same(
        library(method, base, 3, "element", exclude_bias=True), oracle(method, base, 3, "element", exclude_bias=True)
    )


@pytest.mark.parametrize("redraw", [1, 2, 4])
def test_blocks_are_drawn_anew_after_as_many_steps_as_asked(redraw: int) -> None:
    result = library("one-pass", "SGD", 4, "element", redraw=redraw)
    assert_same(result, oracle("one-pass", "SGD", 4, "element", redraw=redraw))
    assert redraw == 4 or (result - library("one-pass", "SGD", 4, "element")).abs().max() > 1e-3
