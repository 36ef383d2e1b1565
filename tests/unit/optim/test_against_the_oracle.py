"""The library against the literal Algorithm 1: equal to 1e-12, as sums are taken in another order."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bcsc
from bcsc.optim.partition import draw_blocks
from bcsc.optim.sampler import draw_shuffles
from tests.oracles import algorithm1

NUM_SAMPLES, NUM_INPUTS, BATCH_SIZE, SEED, EPOCHS = 23, 7, 5, 3, 4
SHAPES = [(1, NUM_INPUTS), (1,)]
MASKS = ["update", "gradient", "all"]

generator = torch.Generator().manual_seed(0)
INPUTS = torch.randn(NUM_SAMPLES, NUM_INPUTS, generator=generator, dtype=torch.float64)
TARGETS = torch.randn(NUM_SAMPLES, generator=generator, dtype=torch.float64)
START = torch.randn(NUM_INPUTS + 1, generator=generator, dtype=torch.float64)


def recipe(mask: str) -> algorithm1.Recipe:
    return algorithm1.Recipe(lr=0.1, momentum=0.9, weight_decay=5e-4, mask=mask)


def permutation(num_blocks: int, epoch: int) -> list[int]:
    """The library's blocks as an explicit permutation of all scalars."""
    drawn = draw_blocks(SHAPES, num_blocks, granularity="element", seed=SEED, epoch=epoch)
    labels = torch.cat([part.flatten() for part in drawn])
    return [i for j in range(num_blocks) for i in torch.nonzero(labels == j).flatten().tolist()]


def library(method: str, num_blocks: int, mask: str) -> Tensor:
    """The parameters after some epochs of the public API in a plain training loop."""
    model = nn.Linear(NUM_INPUTS, 1, dtype=torch.float64)
    nn.utils.vector_to_parameters(START.clone(), model.parameters())
    base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    optimizer, sampler = bcsc.build_method(
        method, base, num_samples=NUM_SAMPLES, batch_size=BATCH_SIZE, num_blocks=num_blocks, seed=SEED, mask=mask
    )
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_sampler=sampler)
    batches_per_step = sampler.batches_per_step
    for epoch in range(EPOCHS):
        optimizer.set_epoch(epoch)
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader, start=1):
            losses = (torch.tanh(model(x).flatten()) - y).square()
            (losses.mean() if batches_per_step == 1 else losses.sum() / NUM_SAMPLES).backward()
            if i % batches_per_step == 0:
                optimizer.step()
                optimizer.zero_grad()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def assert_equal_to(x: algorithm1.Iterate, result: Tensor) -> None:
    torch.testing.assert_close(result, torch.tensor(x.w, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (result - START).abs().max() > 0.1


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("num_blocks", [1, 2, 3, 8])
@pytest.mark.parametrize("method", ["bcsc", "rbc"])
def test_cyclic_methods_equal_algorithm_1(method: str, num_blocks: int, mask: str) -> None:
    x = algorithm1.Iterate(START.tolist())
    gradient = algorithm1.tanh_regression(INPUTS.tolist(), TARGETS.tolist())
    for epoch in range(EPOCHS):
        shuffles = draw_shuffles(NUM_SAMPLES, num_blocks if method == "bcsc" else 1, SEED, epoch).tolist()
        if method == "rbc":
            shuffles = shuffles * num_blocks
        algorithm1.bcsc_epoch(x, gradient, permutation(num_blocks, epoch), shuffles, BATCH_SIZE, recipe(mask))
    assert_equal_to(x, library(method, num_blocks, mask))


def random_picks(method: str, num_blocks: int, epoch: int) -> list[tuple[list[int], int]]:
    """The samples and blocks that the library draws, as a flat list; whole passes for BCD."""
    base = torch.optim.SGD([nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in SHAPES], lr=0.1)
    optimizer, sampler = bcsc.build_method(
        method, base, num_samples=NUM_SAMPLES, batch_size=BATCH_SIZE, num_blocks=num_blocks, seed=SEED
    )
    optimizer.set_epoch(epoch)
    sampler.set_epoch(epoch)
    num_steps = len(sampler) // sampler.batches_per_step
    blocks = []
    for _ in range(num_steps):
        blocks.append(optimizer.block)
        optimizer.step()
    samples = [list(range(NUM_SAMPLES))] * num_steps if method == "bcd" else list(sampler)
    return list(zip(samples, blocks, strict=True))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("num_blocks", [2, 3])
@pytest.mark.parametrize("method", ["sbc", "sbc-one-pass", "bcd"])
def test_random_methods_equal_their_loops(method: str, num_blocks: int, mask: str) -> None:
    x = algorithm1.Iterate(START.tolist())
    gradient = algorithm1.tanh_regression(INPUTS.tolist(), TARGETS.tolist())
    for epoch in range(EPOCHS):
        picks = random_picks(method, num_blocks, epoch)
        algorithm1.random_epoch(x, gradient, permutation(num_blocks, epoch), num_blocks, picks, recipe(mask))
    assert_equal_to(x, library(method, num_blocks, mask))


def test_the_three_masks_differ_under_momentum_and_decay() -> None:
    results = [library("bcsc", 3, mask) for mask in MASKS]
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert (results[i] - results[j]).abs().max() > 1e-3
