"""Packing is undone by unpacking; after a sum every rank has the same gradient, in the active block what all have."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bcsc.choices import GRANULARITIES, MASKS
from bcsc.distributed.block_gradients import (
    active_block_hook,
    indices_by_label,
    packed,
    sum_before_steps,
    sum_gradients,
    unpack_,
)
from bcsc.errors import InvalidArgumentError
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.seeding import stream
from tests.ranks_in_threads import in_threads


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


def parameters() -> list[nn.Parameter]:
    shapes = [(4, 3), (5,), (), (2, 2)]
    return [nn.Parameter(torch.randn(s, generator=stream(0, "p", i))) for i, s in enumerate(shapes)]


def gradient(shape: torch.Size, rank: int, index: int) -> torch.Tensor:
    return torch.randint(-8, 8, shape, generator=stream(0, "g", rank, index)).float()  # whole numbers add up exactly


def optimizer_of(own: list[nn.Parameter], mask: str, granularity: str = "element", **options) -> BlockCyclic:
    return BlockCyclic(torch.optim.SGD(own, lr=0.1, momentum=0.9), 3, mask=mask, granularity=granularity, **options)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("mask", MASKS)
def test_a_sum_is_that_of_all_ranks_inside_the_block_and_outside_too_or_zero(mask, granularity):
    def summed(ranks):
        own = parameters()
        for i, p in enumerate(own[:3]):  # the last has no gradient
            p.grad = gradient(p.shape, ranks.rank, i)
        optimizer = optimizer_of(own, mask, granularity)
        results = []
        for _ in range(3):
            for i, p in enumerate(own[:3]):
                p.grad = gradient(p.shape, ranks.rank, i)
            sum_gradients(optimizer, ranks)
            results.append([p.grad for p in own])
            optimizer.advance()
        return results

    of_ranks = in_threads(2, summed)
    blocks = optimizer_of(parameters(), mask, granularity).epoch_blocks()
    for block, *steps in zip(range(3), *of_ranks, strict=True):
        for gradients in steps:
            assert gradients[3] is None
            for i, found in enumerate(gradients[:3]):
                whole = gradient(found.shape, 0, i) + gradient(found.shape, 1, i)
                inside = blocks.labels[i].expand_as(found) == block
                assert torch.equal(found, whole if mask == "update" else torch.where(inside, whole, 0))


def trained(ranks, mask, num_excluded, *, has=lambda *_: True, is_trainable=lambda *_: True):
    """Seven steps on what both ranks have of the gradients: added up here, or by the ranks themselves."""
    own = parameters()
    optimizer = optimizer_of(own, mask, exclude=own[:num_excluded])
    if ranks is not None:
        sum_before_steps(optimizer, ranks)
    for step in range(7):
        for i, p in enumerate(own):
            p.requires_grad_(is_trainable(step, i))
            parts = [gradient(p.shape, rank, 10 * step + i) if has(rank, step, i) else None for rank in range(2)]
            there = [part for part in parts if part is not None]
            whole = parts[ranks.rank] if ranks is not None else sum(there) if there else None
            p.grad = whole if p.requires_grad else None
        optimizer.step()
    return packed(own)


def assert_the_same_in_parts(mask, num_excluded, **what):
    expected = trained(None, mask, num_excluded, **what)
    found = in_threads(2, lambda ranks: trained(ranks, mask, num_excluded, **what))
    assert all(torch.equal(each, expected) for each in found)


@pytest.mark.parametrize("num_excluded", [0, 2])
@pytest.mark.parametrize("mask", MASKS)
def test_steps_on_summed_parts_are_the_steps_on_the_whole(mask, num_excluded):
    assert_the_same_in_parts(mask, num_excluded)


@pytest.mark.parametrize("num_excluded", [0, 2])
@pytest.mark.parametrize("mask", MASKS)
def test_a_gradient_that_one_rank_lacks_is_zero_there_and_one_that_all_lack_stays_away(mask, num_excluded):
    lacking = {(0, 1, 0), (1, 1, 1), (0, 2, 2), (1, 2, 2)}
    assert_the_same_in_parts(mask, num_excluded, has=lambda rank, step, i: i != 3 and (rank, step, i) not in lacking)


@pytest.mark.parametrize("mask", MASKS)
def test_what_is_excluded_may_be_frozen_and_thawed_inside_an_epoch(mask):
    frozen = {(0, 1), (1, 0), (3, 1)}
    assert_the_same_in_parts(mask, 2, is_trainable=lambda step, i: (step, i) not in frozen)


def test_who_removes_the_hook_steps_alone():
    own = parameters()
    optimizer = optimizer_of(own, "update")
    sum_before_steps(optimizer, None).remove()
    for p in own:
        p.grad = torch.ones_like(p)
    optimizer.step()


@pytest.mark.parametrize(("args", "kwargs"), [((lambda: 0.0,), {}), ((), {"closure": lambda: 0.0})])
def test_a_closure_whose_gradients_would_come_too_late_is_refused(args, kwargs):
    own = parameters()
    optimizer = optimizer_of(own, "update")
    before = packed(own)
    handle = sum_before_steps(optimizer, None)
    with pytest.raises(InvalidArgumentError, match="Compute the gradients first"):
        optimizer.step(*args, **kwargs)
    assert torch.equal(packed(own), before)
    handle.remove()
    optimizer.step(*args, **kwargs)


class Bucket:
    """The gradients of all parameters end to end, as DDP hands them to a hook."""

    def __init__(self, own: list[nn.Parameter]) -> None:
        self._parameters, self._buffer = own, torch.arange(1.0, 1 + sum(p.numel() for p in own))

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def parameters(self) -> list[nn.Parameter]:
        return self._parameters

    def gradients(self) -> list[torch.Tensor]:
        parts = torch.split(self._buffer, [p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]


class Sent:
    """A sum over two ranks that have the same numbers."""

    def __init__(self, message: torch.Tensor, async_op: bool) -> None:
        self.future: torch.futures.Future = torch.futures.Future()
        self.future.set_result([message.mul_(2)])

    def get_future(self) -> torch.futures.Future:
        return self.future


@pytest.mark.parametrize("mask", MASKS)
def test_the_hook_gives_the_mean_inside_the_block_and_outside_too_or_zero(mask, monkeypatch):
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.all_reduce", Sent)
    own = parameters()
    optimizer = optimizer_of(own, mask)
    for block in range(3):
        bucket = Bucket(own)
        whole = bucket.buffer().clone()
        inside = packed(optimizer.epoch_blocks().labels) == block
        found = active_block_hook(optimizer, bucket).wait()
        assert torch.equal(found, whole if mask == "update" else torch.where(inside, whole, 0))
        optimizer.advance()
