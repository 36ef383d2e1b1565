"""The loader counts what the training has received; from any state it goes on with the very next batch."""

import copy
import doctest
from collections.abc import Iterator
from itertools import count, islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset, RandomSampler, TensorDataset

from bcsc import BlockCyclicLoader, BlockCyclicSampler, RankSampler
from bcsc.errors import InvalidArgumentError, StateMismatchError
from bcsc.integrations import loader as loader_module

NUM_SAMPLES = 13
NUM_BATCHES = 12  # 3 blocks of 4


def build(num_workers: int = 0, rank: int | None = None) -> BlockCyclicLoader:
    batches = BlockCyclicSampler(NUM_SAMPLES, 4, 3, seed=5)
    given = batches if rank is None else RankSampler(batches, rank, 2)
    return BlockCyclicLoader(TensorDataset(torch.arange(NUM_SAMPLES)), given, num_workers=num_workers)


def take(loader: BlockCyclicLoader, count: int | None = None) -> list[list[int]]:
    return [batch.tolist() for (batch,) in islice(loader, count)]


def epochs(count: int) -> list[list[list[int]]]:
    sampler = BlockCyclicSampler(NUM_SAMPLES, 4, 3, seed=5)
    return [(sampler.set_epoch(epoch), list(sampler))[1] for epoch in range(count)]


@given(st.integers(0, 2), st.integers(0, NUM_BATCHES), st.sampled_from(["never", "once", "twice"]))
def test_a_state_taken_anywhere_gives_the_remaining_batches(epoch: int, step: int, told: str) -> None:
    loader = build()
    loader.set_epoch(epoch)
    assert take(loader, step) == epochs(3)[epoch][:step]
    resumed = build()
    resumed.load_state_dict(loader.state_dict())
    for _ in range(["never", "once", "twice"].index(told)):
        resumed.set_epoch(epoch)
    finished_and_untold = step == NUM_BATCHES and told == "never"
    assert take(resumed) == (epochs(4)[epoch + 1] if finished_and_untold else epochs(3)[epoch][step:])


class WorkerSeeds(Dataset[int]):
    """Every sample is the seed of the worker that fetched it."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, _index: int) -> int:
        return torch.initial_seed()


def seeds_of_workers(rank: int = 0, epoch: int = 0) -> set[int]:
    batches = RankSampler(BlockCyclicSampler(NUM_SAMPLES, 4, 3, seed=5), rank, 2)
    loader = BlockCyclicLoader(WorkerSeeds(), batches, num_workers=1)
    loader.set_epoch(epoch)
    return {seed for batch in loader for seed in batch.tolist()}


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_the_generator_that_dropout_draws_from_is_left_alone(num_workers: int) -> None:
    before = torch.get_rng_state()
    loader = build(num_workers)
    assert len(take(loader, 5)) == 5
    assert len(take(loader)) == NUM_BATCHES
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_seeds_of_workers_follow_from_the_epoch_and_the_rank() -> None:
    torch.manual_seed(1)
    first, other_epoch, other_rank = seeds_of_workers(), seeds_of_workers(epoch=1), seeds_of_workers(rank=1)
    torch.manual_seed(2)
    assert seeds_of_workers() == first
    assert len(first) == 1
    assert len(first | other_epoch | other_rank) == 3


def test_a_generator_of_ones_own_gives_the_seeds_of_workers() -> None:
    own = torch.Generator()
    before = own.get_state()
    loader = BlockCyclicLoader(TensorDataset(torch.arange(12)), BlockCyclicSampler(12, 4, 2), generator=own)
    assert loader.generator is own
    assert len(list(loader)) == len(loader)
    assert not torch.equal(own.get_state(), before)
    assert own.initial_seed() == torch.Generator().initial_seed()


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return count()


@pytest.mark.parametrize("batches", [4, RandomSampler(range(12)), None])
def test_batches_that_are_no_sampler_of_blocks_are_refused(batches: object) -> None:
    with pytest.raises(InvalidArgumentError, match="batches must be a BlockCyclicSampler or a RankSampler, got a"):
        BlockCyclicLoader(TensorDataset(torch.arange(12)), batches)


def test_a_data_set_without_a_length_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="must have a length, got a Endless without"):
        BlockCyclicLoader(Endless(), BlockCyclicSampler(12, 4, 2))


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 5, NUM_BATCHES - 1, NUM_BATCHES])
def test_what_workers_have_fetched_ahead_comes_again(step: int) -> None:
    loader, resumed = build(num_workers=2), build(num_workers=1)
    iterator = iter(loader)
    received = [next(iterator)[0].tolist() for _ in range(step)]
    assert loader.state_dict()["step"] == step
    resumed.load_state_dict(loader.state_dict())
    resumed.set_epoch(0)
    assert received + take(resumed) == epochs(1)[0]


def test_epochs_follow_each_other_unless_one_is_named() -> None:
    loader = build()
    assert [take(loader) for _ in range(3)] == epochs(3)
    loader.set_epoch(1)
    assert take(loader) == epochs(2)[1]
    loader.set_epoch(1)
    assert take(loader, 3) == take(loader)[:3] == epochs(2)[1][:3]


def test_an_epoch_named_between_iter_and_next_is_the_one_given() -> None:
    """Lightning asks for the iterator first."""
    loader = build()
    iterator = iter(loader)
    loader.set_epoch(2)
    assert next(iterator)[0].tolist() == epochs(3)[2][0]


def test_each_rank_loads_its_part_and_any_number_of_ranks_goes_on() -> None:
    ranks = [build(rank=0), build(rank=1)]
    parts = [take(loader, 5) for loader in ranks]
    assert [sorted(one + other) for one, other in zip(*parts, strict=True)] == list(map(sorted, epochs(1)[0][:5]))
    alone = build()
    alone.load_state_dict(ranks[1].state_dict())
    assert take(alone) == epochs(1)[0][5:]


def test_it_has_the_attributes_of_its_data_loader_and_can_be_copied() -> None:
    loader = build()
    assert (len(loader), len(loader.dataset), loader.num_workers) == (NUM_BATCHES, NUM_SAMPLES, 0)
    assert take(copy.deepcopy(loader)) == take(loader)
    with pytest.raises(AttributeError, match="_nothing"):
        _ = loader._nothing


def test_more_samples_than_there_are_and_states_of_others_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"draws from 14 samples, the data set has 13.*len\(dataset\)"):
        BlockCyclicLoader(TensorDataset(torch.arange(13)), BlockCyclicSampler(14, 4, 3))
    with pytest.raises(StateMismatchError, match="num_blocks was 2, is 3"):
        build().load_state_dict(BlockCyclicSampler(NUM_SAMPLES, 4, 2, seed=5).state_dict())


def test_the_example_in_the_docstring_runs() -> None:
    results = doctest.testmod(loader_module, extraglobs={"torch": torch})
    assert results.attempted > 3
    assert results.failed == 0
