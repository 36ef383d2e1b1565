"""Pure laws of dividing the work and of comparing the ranks, and what one process does alone."""

from itertools import chain

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.distributed.agreement import RanksDisagreeError, check_agreement, fingerprint, odd_ones_out
from bcsc.distributed.block_gradients import indices_by_label, packed, unpack_
from bcsc.distributed.collectives import RankLostError, Ranks
from bcsc.distributed.division import Division
from bcsc.distributed.process_group import process_group
from bcsc.distributed.rank_sampler import RankSampler
from bcsc.errors import InvalidArgumentError
from bcsc.optim.sampler import BlockCyclicSampler


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


@given(st.lists(st.sampled_from([(3,), (2, 3), (), (0, 2)]), min_size=1))
def test_unpacking_puts_back_what_was_packed(shapes):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.rand(shape, generator=generator) for shape in shapes]
    doubled = [tensor * 2 for tensor in tensors]
    unpack_(packed(tensors) * 2, tensors)
    assert all(map(torch.equal, tensors, doubled))


@given(st.lists(st.integers(0, 4), min_size=1))
def test_every_label_has_its_indices_in_order(labels):
    found = indices_by_label(torch.tensor(labels, dtype=torch.uint8), 6)
    assert [indices.tolist() for indices in found] == [[i for i, x in enumerate(labels) if x == j] for j in range(6)]


def test_a_fingerprint_changes_with_any_bit_and_any_word():
    tensor = torch.zeros(3)
    changed = tensor.clone()
    changed[2] = -0.0
    prints = [fingerprint(words, [t]) for words in (["a", 1], ["a", 2]) for t in (tensor, changed)]
    assert len(set(prints)) == 4


@pytest.mark.parametrize(
    ("prints", "odd"), [([5, 5, 5], []), ([5, 5, 7], [2]), ([7, 5, 5], [0]), ([5, 7], [1]), ([1, 2, 2, 3], [0, 3])]
)
def test_the_odd_ones_out_are_those_that_differ_from_most(prints, odd):
    assert odd_ones_out(prints) == odd


class FourRanks(Ranks):
    """Four ranks of which the third has something else."""

    def gather(self, tensor):
        return [tensor, tensor, tensor + 1, tensor]


def test_disagreement_names_the_rank():
    with pytest.raises(RanksDisagreeError, match="In epoch 3, rank 2 of 4 differs"):
        check_agreement(FourRanks(0, 4), "In epoch 3", ["word"], [torch.zeros(2)])


def test_alone_every_collective_is_the_identity_and_sends_nothing():
    ranks, tensor = Ranks(), torch.arange(3.0)
    assert ranks.sum_(tensor) is tensor
    assert [t.tolist() for t in ranks.gather(tensor)] == [[0.0, 1.0, 2.0]]
    assert ranks.from_first(lambda: 7) == 7
    assert ranks.any(True)
    assert not ranks.any(False)
    check_agreement(ranks, "Here", [], [tensor])
    assert ranks.bytes_sent == 0


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group() as ranks:
        assert (ranks.rank, ranks.size) == (0, 1)


def test_an_environment_without_an_address_is_reported(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(RankLostError, match="did not find each other"), process_group():
        pass


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
