"""Every sample of every mini-batch is worked on by exactly one rank, whichever way the work is divided."""

from itertools import chain

import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.distributed.division import WHOLE, Division


@given(st.integers(1, 40), st.integers(1, 9))
def test_by_samples_every_sample_counts_on_exactly_one_rank(num_samples, size):
    divisions = [Division(rank, size) for rank in range(size)]
    parts = [list(range(num_samples))[d.part(num_samples)] for d in divisions]
    counted = [part for d, part in zip(divisions, parts, strict=True) if d.num_counted(num_samples)]
    assert sorted(chain.from_iterable(counted)) == list(range(num_samples))
    assert all(parts)
    assert sum(d.num_counted(num_samples) for d in divisions) == num_samples


@given(st.integers(1, 9), st.integers(0, 5), st.integers(1, 5))
def test_by_steps_every_batch_is_whole_on_exactly_one_rank(size, first_round, num_rounds):
    start, stop = first_round * size, (first_round + num_rounds) * size
    divisions = [Division(rank, size, "steps") for rank in range(size)]
    assert sorted(chain.from_iterable(d.batches(start, stop) for d in divisions)) == list(range(start, stop))
    assert all(d.num_counted(7) == 7 and range(7)[d.part(7)] == range(7) for d in divisions)


def test_merged_losses_are_sums_of_parts_or_stand_in_the_order_of_the_steps():
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    assert Division(0, 2).merged([first, second]).tolist() == [11.0, 22.0]
    assert Division(0, 2, "steps").merged([first, second]).tolist() == [1.0, 10.0, 2.0, 20.0]


@given(st.integers(1, 40), st.integers(0, 9), st.integers(0, 30))
def test_alone_everything_is_ones_own(num_samples, start, num_batches):
    assert WHOLE.steps_at_once == 1
    assert list(WHOLE.batches(start, start + num_batches)) == list(range(start, start + num_batches))
    assert range(num_samples)[WHOLE.part(num_samples)] == range(num_samples)
    assert WHOLE.num_counted(num_samples) == num_samples


@given(st.integers(1, 9), st.integers(0, 5), st.integers(1, 20))
def test_by_samples_every_rank_has_something_of_every_batch(size, start, num_batches):
    for rank in range(size):
        assert Division(rank, size).batches(start, start + num_batches) == range(start, start + num_batches)
        assert Division(rank, size).steps_at_once == 1
        assert Division(rank, size, "steps").steps_at_once == size
