"""Ranks that differ in a word or in a bit are found, and named."""

import pytest
import torch

from bcsc.distributed.agreement import RanksDisagreeError, check_agreement, fingerprint, odd_ones_out
from bcsc.distributed.collectives import Ranks
from tests.ranks_in_threads import in_threads


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


def test_those_who_agree_go_on_and_nobody_is_asked_alone():
    tensors = [torch.zeros(2)]
    check_agreement(Ranks(), "Here", [], tensors)
    assert in_threads(3, lambda ranks: check_agreement(ranks, "Here", ["word"], tensors)) == [None] * 3


def test_every_rank_stops_where_one_differs():
    def complaint(ranks):
        with pytest.raises(RanksDisagreeError, match="Here, rank 1 of 3 differs from the others") as caught:
            check_agreement(ranks, "Here", [], [torch.full((2,), float(ranks.rank == 1))])
        return str(caught.value)

    assert len(set(in_threads(3, complaint))) == 1


def test_the_layout_in_memory_and_the_graph_do_not_count():
    tensor = torch.arange(6.0).view(2, 3)
    other = tensor.t().contiguous().t().requires_grad_()
    assert fingerprint([], [tensor]) == fingerprint([], [other])
