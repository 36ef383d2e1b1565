"""Ranks that step together end as one process that takes W gradients at a point, and any state goes on anywhere."""

import copy
import itertools

import pytest
import torch
from torch import Tensor, nn

from bcsc.choices import MASKS
from bcsc.distributed.block_parallel import BlockParallel
from bcsc.distributed.collectives import Ranks
from bcsc.errors import InvalidArgumentError, StateMismatchError, UnsupportedOptimizerError
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.seeding import stream
from tests.odd_optimizers import Counting
from tests.ranks_in_threads import in_threads

NUM_BLOCKS, STEPS_PER_EPOCH = 4, 8
BASES = ("SGD", "Adam", "Adagrad")
CASES = [*itertools.product(MASKS, BASES), ("update, rescaled", "Adam")]


def built(mask: str, base: str) -> tuple[list[nn.Parameter], BlockCyclic]:
    shapes = [(4, 3), (5,), (1,), (2, 3)]
    own = [nn.Parameter(torch.randn(s, generator=stream(0, "p", i)).double()) for i, s in enumerate(shapes)]
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01} if base == "SGD" else {"lr": 0.1}
    mask, _, rescaled = mask.partition(", ")
    return own, BlockCyclic(getattr(torch.optim, base)(own, **options), NUM_BLOCKS, mask=mask, rescale=bool(rescaled))


def set_gradients(own: list[nn.Parameter], point: list[Tensor], epoch: int, step: int) -> None:
    """Gradients that depend on the step and on the point where they are taken.

    The second parameter has none at every third step, the last one never.
    """
    for i, (p, at) in enumerate(zip(own[:3], point, strict=False)):
        drawn = torch.randn(p.shape, generator=stream(1, "g", epoch, step, i)).double()
        p.grad = None if (i, step % 3) == (1, 2) else drawn + 0.5 * at


def by_hand(size: int, mask: str, base: str, epochs: range = range(2)) -> Tensor:
    own, optimizer = built(mask, base)
    for epoch in epochs:
        optimizer.set_epoch(epoch)
        for start in range(0, STEPS_PER_EPOCH, size):
            point = [p.detach().clone() for p in own]
            for step in range(start, start + size):
                set_gradients(own, point, epoch, step)
                optimizer.step()
    return torch.cat([p.detach().flatten() for p in own])


def train(ranks: Ranks, own: list[nn.Parameter], optimizer: BlockParallel, epoch: int, rounds: range) -> None:
    for number in rounds:
        set_gradients(own, [p.detach().clone() for p in own], epoch, number * ranks.size + ranks.rank)
        optimizer.step()
        optimizer.zero_grad()


def whole_run(ranks: Ranks, mask: str, base: str) -> Tensor:
    own, optimizer = built(mask, base)
    parallel = BlockParallel(optimizer, ranks)
    for epoch in range(2):
        parallel.set_epoch(epoch)
        train(ranks, own, parallel, epoch, range(STEPS_PER_EPOCH // ranks.size))
    assert parallel.inner_step == STEPS_PER_EPOCH
    assert not optimizer.base.state  # it is in pieces
    return torch.cat([p.detach().flatten() for p in own])


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(("mask", "base"), CASES)
def test_a_round_is_gradients_at_one_point_then_steps_in_cycle_order(size: int, mask: str, base: str) -> None:
    expected = by_hand(size, mask, base)
    for found in in_threads(size, whole_run, mask, base):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def with_a_detour(ranks: Ranks, mask: str, base: str) -> Tensor:
    """Save in the second epoch, train on, load what was saved, and do it over."""
    own, optimizer = built(mask, base)
    parallel = BlockParallel(optimizer, ranks)
    parallel.set_epoch(0)
    train(ranks, own, parallel, 0, range(STEPS_PER_EPOCH // ranks.size))
    parallel.set_epoch(1)
    train(ranks, own, parallel, 1, range(1))
    saved, values = copy.deepcopy(parallel.state_dict()), [p.detach().clone() for p in own]
    train(ranks, own, parallel, 1, range(1, STEPS_PER_EPOCH // ranks.size))
    parallel.load_state_dict(saved)
    with torch.no_grad():
        for p, value in zip(own, values, strict=True):
            p.copy_(value)
    parallel.set_epoch(1)
    train(ranks, own, parallel, 1, range(1, STEPS_PER_EPOCH // ranks.size))
    return torch.cat([p.detach().flatten() for p in own])


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize(("mask", "base"), CASES)
def test_a_state_is_loaded_over_one_that_was_in_use(size: int, mask: str, base: str) -> None:
    expected = in_threads(size, whole_run, mask, base)
    assert all(map(torch.equal, in_threads(size, with_a_detour, mask, base), expected))


def state_after_an_epoch(ranks: Ranks, mask: str, base: str) -> tuple[dict, list[Tensor]]:
    own, optimizer = built(mask, base)
    parallel = BlockParallel(optimizer, ranks)
    parallel.set_epoch(0)
    train(ranks, own, parallel, 0, range(STEPS_PER_EPOCH // ranks.size))
    return parallel.state_dict(), [p.detach().clone() for p in own]


@pytest.mark.parametrize(("mask", "base"), CASES)
def test_its_state_is_that_of_the_plain_optimizer(mask: str, base: str) -> None:
    """For one rank to the bit what the wrapped optimizer would have, for two what goes on without them."""
    alone, optimizer = built(mask, base)
    optimizer.set_epoch(0)
    for step in range(STEPS_PER_EPOCH):
        set_gradients(alone, [p.detach().clone() for p in alone], 0, step)
        optimizer.step()
    ((found, _),) = in_threads(1, state_after_an_epoch, mask, base)
    expected = optimizer.state_dict()
    assert found["block_cyclic"] == expected["block_cyclic"]
    assert found["state"].keys() == expected["state"].keys()
    for key, entries in expected["state"].items():
        for name, value in entries.items():
            torch.testing.assert_close(
                torch.as_tensor(found["state"][key][name]), torch.as_tensor(value), rtol=0, atol=0
            )
    for state, _ in in_threads(2, state_after_an_epoch, mask, base):
        built(mask, base)[1].load_state_dict(state)
        assert state["state"].keys() == expected["state"].keys()


def optimizer_of(kind=torch.optim.SGD, **options):
    return BlockCyclic(kind([nn.Parameter(torch.zeros(4, 3))], lr=0.1), 6, **options)


def test_ranks_that_do_not_divide_the_blocks_are_refused():
    with pytest.raises(InvalidArgumentError, match="4 ranks and 6 blocks"):
        BlockParallel(optimizer_of(), Ranks(0, 4))


def freezing(ranks: Ranks | None, size: int) -> Tensor:
    """Three epochs, in the second of which the first parameter is frozen; by hand where there are no ranks."""
    own, optimizer = built("update", "SGD")
    parallel = None if ranks is None else BlockParallel(optimizer, ranks)
    for epoch in range(3):
        own[0].requires_grad_(epoch != 1)
        (parallel or optimizer).set_epoch(epoch)
        for start in range(0, STEPS_PER_EPOCH, size):
            point = [p.detach().clone() for p in own]
            for step in range(start, start + size) if ranks is None else [start + ranks.rank]:
                set_gradients(own, point, epoch, step)
                own[0].grad = None if epoch == 1 else own[0].grad
                (parallel or optimizer).step()
            if parallel is not None and epoch == 1:
                assert len(parallel.state_dict()["state"]) == 3
    return torch.cat([p.detach().flatten() for p in own])


@pytest.mark.parametrize("size", [1, 2])
def test_a_parameter_that_is_frozen_for_an_epoch_keeps_its_state(size: int) -> None:
    expected = freezing(None, size)
    for found in in_threads(size, freezing, size):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def counted(ranks: Ranks) -> tuple[Tensor, int]:
    own = [nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(5))]
    optimizer = BlockCyclic(Counting(own), NUM_BLOCKS)
    parallel = BlockParallel(optimizer, ranks)
    for _ in range(STEPS_PER_EPOCH // ranks.size):
        for p in own:
            p.grad = torch.ones_like(p)
        parallel.step()
    return torch.cat([p.detach().flatten() for p in own]), optimizer.param_groups[0]["count"]


def test_what_a_base_counts_among_its_options_is_counted_in_parallel_too() -> None:
    (expected, count), *others = (found for size in (1, 2, 4) for found in in_threads(size, counted))
    assert count == STEPS_PER_EPOCH
    for moved, counts in others:
        assert counts == STEPS_PER_EPOCH
        torch.testing.assert_close(moved, expected, rtol=0, atol=1e-7)


def test_blocks_at_random_are_refused():
    with pytest.raises(InvalidArgumentError, match="in turn"):
        BlockParallel(optimizer_of(order="random"), Ranks(0, 2))


@pytest.mark.parametrize("options", [{"redraw": 6}, {"align": True}, {"exclude": True}], ids=str)
def test_what_is_not_kept_by_block_is_refused(options):
    own = [nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(2))]
    options = {"exclude": own[1:]} if "exclude" in options else options
    with pytest.raises(InvalidArgumentError, match="it knows no redraw, align or exclude"):
        BlockParallel(BlockCyclic(torch.optim.SGD(own, lr=0.1), 6, **options), Ranks(0, 2))


def test_an_optimizer_that_makes_the_weights_to_evaluate_from_its_state_is_refused():
    schedulefree = pytest.importorskip("schedulefree")
    base = schedulefree.SGDScheduleFree([nn.Parameter(torch.zeros(4, 3))], lr=0.1)
    with pytest.raises(UnsupportedOptimizerError, match="SGDScheduleFree makes the weights to be evaluated"):
        BlockParallel(BlockCyclic(base, 6, mask="all"), Ranks(0, 2))


def test_an_optimizer_that_mixes_the_scalars_of_a_tensor_is_refused():
    with pytest.raises(UnsupportedOptimizerError, match="Adafactor does not treat every scalar by itself"):
        BlockParallel(optimizer_of(torch.optim.Adafactor), Ranks(0, 2))


def test_a_parameter_without_a_dimension_is_refused_unless_the_base_is_sgd():
    scalar = [nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(3))]
    with pytest.raises(UnsupportedOptimizerError, match=r"Give the parameter a shape of \(1,\)"):
        BlockParallel(BlockCyclic(torch.optim.NAdam(scalar), 2), Ranks(0, 2))
    BlockParallel(BlockCyclic(torch.optim.SGD(scalar), 2), Ranks(0, 2))


def test_an_epoch_of_rounds_that_are_not_whole_is_refused():
    own = [nn.Parameter(torch.ones(8))]
    optimizer = BlockCyclic(torch.optim.SGD(own, lr=0.1), 4, steps_per_epoch=5)
    with pytest.raises(InvalidArgumentError, match="must divide steps_per_epoch .* got 2 ranks and steps_per_epoch=5"):
        BlockParallel(optimizer, Ranks(0, 2))
    BlockParallel(BlockCyclic(torch.optim.SGD(own, lr=0.1), 4, steps_per_epoch=6), Ranks(0, 2))


def test_a_state_from_within_a_round_is_refused_and_nothing_is_changed():
    own, optimizer = built("update", "SGD")
    set_gradients(own, own, 0, 0)
    optimizer.step()
    saved = optimizer.state_dict()
    parallel = BlockParallel(built("update", "SGD")[1], Ranks(0, 2))
    with pytest.raises(
        StateMismatchError, match="stands after 1 inner steps of an epoch, which are no whole rounds of"
    ):
        parallel.load_state_dict(saved)
    assert parallel.inner_step == 0
    BlockParallel(built("update", "SGD")[1], Ranks()).load_state_dict(saved)
