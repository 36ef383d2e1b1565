"""What every client trains here, and the plain loop that it is compared with."""

from itertools import islice

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bcsc

NUM_SAMPLES, BATCH_SIZE, NUM_BLOCKS, NUM_EPOCHS = 26, 8, 3, 3
STEPS_PER_EPOCH = 12  # 3 blocks of 4 batches, the last of 2 samples


def make_dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(NUM_SAMPLES, 6, dtype=torch.float64, generator=generator)
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


DATASET = make_dataset()


def build_network() -> nn.Sequential:
    """The same weights each time, in double precision."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 2)).double()


def build_base(network: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def build_sampler(num_samples: int = NUM_SAMPLES, **options: int) -> bcsc.BlockCyclicSampler:
    return bcsc.BlockCyclicSampler(num_samples, **{"batch_size": BATCH_SIZE, "num_blocks": NUM_BLOCKS, **options})


def loss_of(network: nn.Module, batch: list[Tensor]) -> Tensor:
    inputs, labels = batch
    return nn.functional.cross_entropy(network(inputs), labels)


def plain_loop(
    num_samples: int = NUM_SAMPLES,
    batch_size: int = BATCH_SIZE,
    num_blocks: int = NUM_BLOCKS,
    num_epochs: int = NUM_EPOCHS,
    steps: int | None = None,
    **options: str,
) -> nn.Module:
    """The network after the README's loop, or after the first ``steps`` of each of its epochs."""
    network = build_network()
    optimizer = bcsc.BlockCyclic(build_base(network), num_blocks, **options)
    batches = build_sampler(num_samples, batch_size=batch_size, num_blocks=num_blocks)
    for epoch in range(num_epochs):
        optimizer.set_epoch(epoch)
        batches.set_epoch(epoch)
        for batch in islice(DataLoader(DATASET, batch_sampler=batches), steps):
            optimizer.zero_grad()
            loss_of(network, batch).backward()
            optimizer.step()
    return network


def weights_of(network: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in network.parameters()]


def assert_same_bits(one: nn.Module, other: nn.Module) -> None:
    assert all(torch.equal(p, q) for p, q in zip(weights_of(one), weights_of(other), strict=True))
