"""Within an epoch every sample meets every block exactly once; epochs differ; a state resumes anywhere."""

from collections import Counter
from itertools import chain

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.data import DataLoader, TensorDataset

from bcsc import BlockCyclicSampler, RankSampler
from bcsc.choices import SAMPLES
from bcsc.errors import DriftWarning, InvalidArgumentError, StateMismatchError

sizes = st.tuples(st.integers(1, 60), st.integers(1, 70), st.integers(1, 6))


@given(sizes, st.integers(0, 3))
def test_every_sample_meets_every_block_exactly_once_per_epoch(size, epoch: int) -> None:
    num_samples, batch_size, num_blocks = size
    sampler = BlockCyclicSampler(num_samples, batch_size, num_blocks, seed=1)
    sampler.set_epoch(epoch)
    visits = Counter((step % num_blocks, i) for step, batch in enumerate(sampler) for i in batch)
    assert len(visits) == num_blocks * num_samples
    assert set(visits.values()) == {1}


@given(sizes)
def test_length_is_m_times_the_batches_of_a_pass_and_the_last_short_batch_is_kept(size) -> None:
    num_samples, batch_size, num_blocks = size
    batches = list(BlockCyclicSampler(num_samples, batch_size, num_blocks))
    assert len(batches) == len(BlockCyclicSampler(num_samples, batch_size, num_blocks))
    assert len(batches) == num_blocks * -(-num_samples // batch_size)
    full, rest = divmod(num_samples, batch_size)
    expected = [batch_size] * (full * num_blocks) + [rest] * (num_blocks if rest else 0)
    assert [len(batch) for batch in batches] == expected


@given(sizes, st.sampled_from(SAMPLES), st.data())
def test_a_state_taken_anywhere_gives_the_remaining_batches(size, samples, data) -> None:
    sampler = BlockCyclicSampler(*size, seed=2, samples=samples)
    sampler.set_epoch(3)
    whole = list(sampler)
    step = data.draw(st.integers(0, len(whole)))
    iterator = iter(sampler)
    for _ in range(step):
        next(iterator)
    state = sampler.state_dict() if step else {**sampler.state_dict(), "step": 0}
    resumed = BlockCyclicSampler(*size, seed=2, samples=samples)
    resumed.load_state_dict(state)
    resumed.set_epoch(3)
    assert list(resumed) == whole[step:]
    assert list(resumed) == whole
    resumed.set_epoch(4)
    assert len(list(resumed)) == len(whole)


def test_epochs_and_seeds_and_blocks_have_shuffles_of_their_own() -> None:
    def shuffles(seed: int, epoch: int) -> list[tuple[int, ...]]:
        sampler = BlockCyclicSampler(40, 40, 3, seed=seed)
        sampler.set_epoch(epoch)
        return [tuple(batch) for batch in sampler]

    drawn = [shuffle for seed in range(2) for epoch in range(3) for shuffle in shuffles(seed, epoch)]
    assert len(set(drawn)) == len(drawn)
    assert shuffles(1, 2) == shuffles(1, 2)


def test_one_shuffle_repeats_each_batch_for_every_block() -> None:
    batches = list(BlockCyclicSampler(10, 4, 3, samples="one-shuffle"))
    assert all(batches[3 * t] == batches[3 * t + 1] == batches[3 * t + 2] for t in range(3))
    assert sorted(chain.from_iterable(batches[::3])) == list(range(10))


def test_everything_gives_one_whole_pass_after_the_other() -> None:
    batches = list(BlockCyclicSampler(10, 4, 3, samples="everything"))
    passes = [list(chain.from_iterable(batches[i : i + 3])) for i in range(0, 9, 3)]
    assert all(sorted(p) == list(range(10)) for p in passes)
    assert passes[0] != passes[1]


kinds = st.tuples(st.sampled_from(SAMPLES), st.booleans()).filter(lambda kind: kind[0] == "random" or not kind[1])


@given(sizes, kinds)
def test_the_sizes_it_announces_are_those_of_its_batches(size, kind) -> None:
    sampler = BlockCyclicSampler(*size, samples=kind[0], one_pass=kind[1])
    batches = [len(batch) for batch in sampler]
    assert batches == [sampler.batch_size_at(step) for step in range(len(sampler))]
    assert sum(batches) == sampler.samples_per_epoch
    num_samples, batch_size, num_blocks = size
    assert sampler.batches_per_pass == -(-num_samples // batch_size)
    assert len(batches) == sampler.batches_per_pass * (1 if kind[1] else num_blocks)


def test_random_batches_of_other_seeds_epochs_and_steps_are_others() -> None:
    def batches(seed: int, epoch: int) -> list[tuple[int, ...]]:
        sampler = BlockCyclicSampler(40, 20, 2, seed=seed, samples="random")
        return [tuple(batch.tolist()) for batch in sampler.index_batches(epoch)]

    drawn = [batch for seed in range(2) for epoch in range(3) for batch in batches(seed, epoch)]
    assert len(set(drawn)) == len(drawn) == 24
    assert batches(1, 2) == batches(1, 2)


def test_random_batches_hold_distinct_samples_each_equally_often() -> None:
    sampler = BlockCyclicSampler(20, 5, 50, samples="random")
    batches = [batch for epoch in range(20) for batch in (sampler.set_epoch(epoch), list(sampler))[1]]
    assert all(len(set(batch)) == 5 for batch in batches)
    counts = Counter(i for batch in batches for i in batch)
    expected = len(batches) * 5 / 20
    assert sum((counts[i] - expected) ** 2 / expected for i in range(20)) < 60  # 19 degrees: once in a million
    assert len(BlockCyclicSampler(20, 5, 50, samples="random", one_pass=True)) == 4


def test_peeking_at_a_batch_does_not_use_it_up() -> None:
    sampler = BlockCyclicSampler(10, 4, 2)
    first = next(iter(sampler))
    assert next(iter(sampler)) == first
    assert len(list(sampler)) == len(sampler)


def test_index_batches_are_the_same_batches() -> None:
    sampler = BlockCyclicSampler(11, 4, 2, seed=4)
    assert [batch.tolist() for batch in sampler.index_batches(0)] == list(sampler)
    assert [batch.tolist() for batch in sampler.index_batches(0, start=3)] == list(sampler)[3:]


def test_it_drives_a_data_loader_with_workers() -> None:
    sampler = BlockCyclicSampler(12, 5, 2, seed=1)
    loader = DataLoader(TensorDataset(torch.arange(12)), batch_sampler=sampler, num_workers=1)
    assert [batch.tolist() for (batch,) in loader] == list(sampler)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4, 2), "num_samples .* at least 1, got 0"),
        ((10, 0, 2), "batch_size must be a whole number of at least 1, got 0"),
        ((10, 4, 0), "num_blocks .* got 0"),
        ((10, 2.5, 2), "batch_size .* got 2.5"),
        (([1, 2], 4, 2), r"give len\(dataset\)"),
        ((torch.ones(5), 1, 1), r"give len\(dataset\)"),
    ],
)
def test_bad_sizes_are_refused(arguments, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        BlockCyclicSampler(*arguments)


def test_bad_options_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="samples must be one of.*Did you mean 'one-shuffle'"):
        BlockCyclicSampler(10, 4, 2, samples="one-shufle")
    with pytest.raises(InvalidArgumentError, match="one_pass=True goes with"):
        BlockCyclicSampler(10, 4, 2, one_pass=True)
    with pytest.raises(InvalidArgumentError, match="epoch must be a whole number of at least 0, got -1"):
        BlockCyclicSampler(10, 4, 2).set_epoch(-1)


def test_a_state_of_another_sampler_is_refused_and_changes_nothing() -> None:
    sampler = BlockCyclicSampler(10, 4, 2, seed=1)
    before = sampler.state_dict()
    with pytest.raises(StateMismatchError, match="batch_size was 5, is 4; seed was 0, is 1"):
        sampler.load_state_dict(BlockCyclicSampler(10, 5, 2).state_dict())
    with pytest.raises(StateMismatchError, match="lacks step"):
        sampler.load_state_dict({k: v for k, v in before.items() if k != "step"})
    assert sampler.state_dict() == before


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.just(10**9),
    st.just(10**5000),
    st.floats(),
    st.text(max_size=9),
    st.lists(st.integers(), max_size=3),
    st.just(torch.zeros(2)),
)
FIELDS = ("epoch", "step", "num_samples", "batch_size", "num_blocks", "seed", "samples", "one_pass")


@given(st.one_of(values, st.dictionaries(st.sampled_from(FIELDS), values)))
def test_a_state_is_loaded_or_refused_before_anything_is_changed(damage) -> None:
    sampler = BlockCyclicSampler(10, 3, 2, seed=1)
    sampler.set_epoch(4)
    expected = list(sampler)
    before = sampler.state_dict()
    state = {**before, **damage} if isinstance(damage, dict) else damage
    try:
        sampler.load_state_dict(state)
    except (StateMismatchError, InvalidArgumentError):
        assert sampler.state_dict() == before
        assert list(sampler) == expected
    else:
        assert sampler.state_dict() == state
        sampler.set_epoch(state["epoch"])
        assert len(list(sampler)) == len(sampler) - state["step"]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "This is not the state of a sampler: it lacks epoch, step, num_samples"),
        ({"step": 10**9}, "The saved step is beyond the 8 batches of an epoch"),
        ({"step": 9}, "The saved step is beyond the 8 batches of an epoch"),
        ({"step": None}, "step must be a whole number of at least 0, got None"),
        ({"epoch": 2**63}, "epoch must be a whole number of at most 9223372036854775807, got 9223372036854775808"),
        ({"seed": None}, "seed was None, is 0"),
    ],
)
def test_what_is_wrong_with_a_state_is_said(state, message: str) -> None:
    sampler = BlockCyclicSampler(10, 3, 2)
    whole = state if state is None else {**sampler.state_dict(), **state}
    with pytest.raises((StateMismatchError, InvalidArgumentError), match=message):
        sampler.load_state_dict(whole)


@given(sizes, st.integers(1, 4), st.sampled_from([name for name in SAMPLES if name != "everything"]))
def test_the_batches_of_a_step_are_together_the_mini_batch_of_that_step(size, batches_per_step: int, samples) -> None:
    num_samples, batch_size, num_blocks = size
    whole = BlockCyclicSampler(num_samples, batch_size * batches_per_step, num_blocks, seed=1, samples=samples)
    try:
        parts = BlockCyclicSampler(*size, seed=1, samples=samples, batches_per_step=batches_per_step)
    except InvalidArgumentError:
        assert min(map(len, whole)) < batches_per_step
        return
    batches = list(parts)
    steps = [batches[i : i + batches_per_step] for i in range(0, len(batches), batches_per_step)]
    assert [list(chain.from_iterable(step)) for step in steps] == list(whole)
    assert all(len(batch) <= batch_size for batch in batches)
    assert max(len(step[0]) - len(step[-1]) for step in steps) <= 1
    assert (len(parts), parts.steps_per_epoch) == (len(batches), len(whole))
    assert parts.samples_per_epoch == sum(map(len, batches))
    assert [parts.batch_size_at(number) for number in range(len(parts))] == list(map(len, batches))


def test_a_whole_pass_makes_a_step_where_everything_is_accumulated() -> None:
    sampler = BlockCyclicSampler(10, 4, 5, samples="everything")
    assert (sampler.batches_per_step, sampler.steps_per_epoch) == (3, 5)
    with pytest.raises(InvalidArgumentError, match='samples="everything" accumulates a whole pass.*got 2'):
        BlockCyclicSampler(10, 4, 5, samples="everything", batches_per_step=2)


def test_a_mini_batch_too_small_for_its_parts_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="last inner step of a pass has 2 of the 26 samples, too few for"):
        BlockCyclicSampler(26, 4, 2, batches_per_step=3)
    with pytest.raises(InvalidArgumentError, match="batches_per_step must be a whole number of at least 1, got 0"):
        BlockCyclicSampler(26, 4, 2, batches_per_step=0)


def test_the_restored_epoch_may_be_set_again_until_a_batch_is_given() -> None:
    sampler = BlockCyclicSampler(12, 4, 2)
    sampler.set_epoch(1)
    whole = list(sampler)
    sampler.load_state_dict({**sampler.state_dict(), "step": 4})
    sampler.set_epoch(1)
    sampler.set_epoch(1)
    assert sampler.start == sampler.given_in(1) == 4
    assert list(sampler) == whole[4:]
    sampler.load_state_dict({**sampler.state_dict(), "step": 4})
    assert next(iter(sampler)) == whole[4]
    sampler.set_epoch(1)
    assert list(sampler) == whole


def test_a_trainer_finds_the_sampler_of_the_batch_sampler() -> None:
    sampler = BlockCyclicSampler(12, 4, 2)
    assert sampler.sampler is sampler
    assert RankSampler(sampler, 0, 2).sampler is sampler


def test_a_new_sampler_has_given_nothing() -> None:
    sampler = BlockCyclicSampler(10, 4, 3)
    assert (sampler.epoch, sampler.start, sampler.begun_at, sampler.given_in(0)) == (0, 0, 0, 0)
    assert sampler.state_dict()["step"] == 0


def test_whole_mini_batches_in_each_of_several_processes_are_warned_of_once() -> None:
    sampler = BlockCyclicSampler(4, 2, 1)
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    try:
        with pytest.warns(DriftWarning, match="^Each of 2 processes takes whole mini-batches from this") as caught:
            batches = [list(sampler) for _ in range(2)]
    finally:
        dist.destroy_process_group()
    assert len(caught) == 1
    assert batches == [list(sampler)] * 2


def test_random_mini_batches_are_never_short_so_that_all_can_be_given_in_parts() -> None:
    sampler = BlockCyclicSampler(10, 2, 1, samples="random", batches_per_step=4)
    assert [len(batch) for batch in sampler] == [2] * 8
    with pytest.raises(InvalidArgumentError, match="has 2 of the 10 samples, too few for batches_per_step=4"):
        BlockCyclicSampler(10, 2, 1, batches_per_step=4)
