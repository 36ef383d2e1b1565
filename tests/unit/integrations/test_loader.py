"""The loader counts what the training has received; from any state it goes on with the very next batch."""

import copy
import doctest
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

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
