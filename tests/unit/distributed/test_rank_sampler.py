"""The parts of all ranks, weighted, are the whole mini-batches."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.distributed.rank_sampler import RankSampler
from bcsc.errors import InvalidArgumentError
from bcsc.optim.sampler import BlockCyclicSampler


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 4), st.integers(1, 5))
def test_the_rank_samplers_weighted_parts_are_the_whole_batches(num_samples, batch_size, num_blocks, size):
    whole = BlockCyclicSampler(num_samples, batch_size, num_blocks)
    samplers = [RankSampler(BlockCyclicSampler(num_samples, batch_size, num_blocks), r, size) for r in range(size)]
    for step, (batch, *parts) in enumerate(zip(whole, *samplers, strict=True)):
        weights = [sampler.loss_weight(step) for sampler in samplers]
        share = dict.fromkeys(batch, 0.0)
        for weight, part in zip(weights, parts, strict=True):
            for sample in part:
                share[sample] += weight / len(part) / size
        assert list(share.values()) == pytest.approx([1 / len(batch)] * len(batch))


def test_a_rank_outside_the_group_is_refused():
    with pytest.raises(InvalidArgumentError, match="num_ranks must be a whole number of at least 3, got 2"):
        RankSampler(BlockCyclicSampler(10, 2, 2), 2, 2)


def test_a_state_taken_on_one_rank_goes_on_with_other_ranks():
    sampler = RankSampler(BlockCyclicSampler(10, 4, 2, seed=1), 0, 2)
    sampler.set_epoch(3)
    batches = iter(sampler)
    for _ in range(2):
        next(batches)
    other = RankSampler(BlockCyclicSampler(10, 4, 2, seed=1), 0, 1)
    other.load_state_dict(sampler.state_dict())
    other.set_epoch(3)
    whole = BlockCyclicSampler(10, 4, 2, seed=1)
    whole.set_epoch(3)
    assert list(other) == list(whole)[2:]
    assert len(other) == len(whole)
    assert other.sampler.epoch == 3
