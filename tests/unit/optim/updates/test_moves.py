"""Which units move, how far, and that nothing else of the optimizer notices."""

import copy
import io
import re
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcsc
from bcsc.choices import GRANULARITIES, MASKS
from bcsc.errors import InvalidArgumentError, StateMismatchError
from bcsc.optim.partition import draw_blocks
from bcsc.optim.updates.alignment import Alignment, alignment
from bcsc.optim.updates.settings import check_moves, checked_exclusion

BASES = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "cycle": {"redraw": 3, "rescale": True},
    "random": {"order": "random", "redraw": 2, "rescale": True},
    "skip-update": {"order": "bernoulli", "rescale": True},
    "magma": {"order": "bernoulli", "align": True, "granularity": "tensor"},
    "magma by row": {"order": "bernoulli", "align": True, "rescale": True, "granularity": "row"},
}


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step)).to(model[0].weight.dtype)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def vector(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def moved(model: nn.Module, optimizer: bcsc.BlockCyclic, step: int) -> Tensor:
    before = vector(model)
    train(model, optimizer, range(step, step + 1))
    return vector(model) != before


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("options", [{}, {"order": "bernoulli"}, {"redraw": 1}], ids=str)
def test_one_block_is_the_base_to_the_bit_however_it_is_rescaled(base: str, options: dict[str, Any]) -> None:
    bare, model = network(), network()
    optimizer = bcsc.BlockCyclic(BASES[base](model.parameters()), 1, rescale=True, **options)
    train(bare, BASES[base](bare.parameters()), range(20))
    train(model, optimizer, range(20))
    assert torch.equal(vector(bare), vector(model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("base", BASES)
def test_a_rescaled_move_is_m_times_the_move_of_the_base_to_a_rounding(base: str, dtype: torch.dtype) -> None:
    model = network(dtype)
    optimizer = bcsc.BlockCyclic(BASES[base](model.parameters()), 4, rescale=True)
    for step in range(8):
        twin, bare = copy.deepcopy((model, optimizer.base))
        before = vector(model).double()
        inside = torch.cat([labels.flatten() == optimizer.block for labels in optimizer.epoch_blocks().labels])
        train(twin, bare, range(step, step + 1))
        train(model, optimizer, range(step, step + 1))
        expected = torch.where(inside, before + 4 * (vector(twin).double() - before), before)
        torch.testing.assert_close(vector(model).double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-12)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_independent_labels_come_as_often_as_they_should_and_by_themselves(granularity: str) -> None:
    """Of 2,000 draws a label has each unit in a third of them, two units in a ninth; 5 standard deviations."""
    num_draws, shapes = 2_000, [(2, 3), (2,)]
    draws = torch.stack(
        [
            torch.cat([part.flatten() for part in draw_blocks(shapes, 3, granularity=granularity, seed=1, **where)])
            for where in ({"epoch": 0, "draw": draw, "balanced": False} for draw in range(num_draws))
        ]
    )
    for label in range(3):
        hit = (draws == label).double()
        both = hit.T @ hit / num_draws
        expected = torch.full_like(both, 1 / 9).fill_diagonal_(1 / 3)
        assert ((both - expected).abs() <= 5 * (expected * (1 - expected) / num_draws).sqrt()).all()
    later = (draws[1:] == draws[:-1]).double().mean(0)
    assert ((later - 1 / 3).abs() <= 5 * (2 / 9 / num_draws) ** 0.5).all()


def test_more_blocks_than_units_are_no_trouble_where_every_unit_is_drawn_by_itself() -> None:
    model = network()
    base = BASES["SGD"](model.parameters())
    optimizer = bcsc.BlockCyclic(base, 10, order="bernoulli", granularity="tensor")
    counts = Counter(moved(model, optimizer, step).sum().item() > 0 for step in range(30))
    assert counts[True] > 0
    assert counts[False] > 0


def test_after_every_cycle_all_have_moved_once_and_the_blocks_are_others() -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(BASES["SGD"](model.parameters()), 4, redraw=4)
    cycles = []
    for cycle in range(5):
        moves = torch.stack([moved(model, optimizer, 4 * cycle + j) for j in range(4)])
        assert (moves.sum(0) == 1).all()
        cycles.append(moves)
    assert all(not torch.equal(one, other) for one, other in pairwise(cycles))


def test_blocks_that_are_drawn_often_take_no_new_memory() -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(BASES["SGD"](model.parameters()), 2, redraw=1, rescale=True)
    train(model, optimizer, range(1))
    places = [labels.data_ptr() for labels in optimizer.epoch_blocks().labels]
    train(model, optimizer, range(1, 5))
    assert [labels.data_ptr() for labels in optimizer.epoch_blocks().labels] == places
    optimizer.set_epoch(1)
    assert [labels.data_ptr() for labels in optimizer.epoch_blocks().labels] != places


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_state_goes_on_to_the_bit_from_anywhere(options: str, base: str) -> None:
    def build(model: nn.Module) -> bcsc.BlockCyclic:
        setup = {**OPTIONS[options], "exclude": [model[2].bias], "steps_per_epoch": 5}
        return bcsc.BlockCyclic(BASES[base](model.parameters()), 3, seed=2, **setup)

    whole = network()
    train(whole, build(whole), range(14))
    for broken_at in (0, 4, 7):
        model = network()
        optimizer = build(model)
        train(model, optimizer, range(broken_at))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        resumed = network()
        resumed.load_state_dict(saved["model"])
        continued = build(resumed)
        train(resumed, continued, range(20, 22))  # what it has learned before is forgotten
        resumed.load_state_dict(saved["model"])
        continued.load_state_dict(saved["optimizer"])
        train(resumed, continued, range(broken_at, 14))
        assert torch.equal(vector(resumed), vector(whole))
        copied_model, copied = copy.deepcopy((model, optimizer))
        train(copied_model, copied, range(broken_at, 14))
        assert torch.equal(vector(copied_model), vector(whole))


def test_a_state_from_before_there_were_masked_updates_is_loaded() -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(BASES["SGD"](model.parameters()), 3)
    train(model, optimizer, range(4))
    state = optimizer.state_dict()
    for name in ("redraw", "rescale", "align", "exclude"):
        del state["block_cyclic"][name]
    optimizer.load_state_dict(state)
    assert optimizer.inner_step == 4
    other = bcsc.BlockCyclic(BASES["SGD"](network().parameters()), 3, rescale=True)
    with pytest.raises(StateMismatchError, match="rescale was False, is True"):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: None,
        lambda kept: kept[:2],
        lambda kept: [{"average": kept[0]["average"]}, *kept[1:]],
        lambda kept: [{**kept[0], "score": torch.ones(5)}, *kept[1:]],
        lambda kept: [{**kept[0], "average": kept[0]["average"].double()}, *kept[1:]],
        lambda kept: [{**kept[0], "average": torch.zeros(1, 1).expand(5, 6)}, *kept[1:]],
        lambda kept: ["much", *kept[1:]],
    ],
)
def test_another_alignment_is_refused_and_nothing_is_changed(change) -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(BASES["SGD"](model.parameters()), 2, **OPTIONS["magma"])
    train(model, optimizer, range(3))
    state = copy.deepcopy(optimizer.state_dict())
    state["block_cyclic"]["alignment"] = change(state["block_cyclic"]["alignment"])
    state["block_cyclic"]["step"] = 7
    with pytest.raises(StateMismatchError, match="not of this optimizer"):
        optimizer.load_state_dict(state)
    assert optimizer.inner_step == 3


@pytest.mark.parametrize("mask", MASKS)
def test_what_is_excluded_is_in_no_block_and_goes_its_own_way(mask: str) -> None:
    """One that the base writes into the gradients of keeps those, too."""
    bare, model = network(), network()
    for layer in (bare[0], model[0]):
        layer.requires_grad_(False)
    for gradient in range(6):
        torch.manual_seed(gradient)
        draws = [torch.randn_like(p) for p in bare[2].parameters()]
        for own in (bare, model):
            for p, draw in zip(own[2].parameters(), draws, strict=True):
                p.grad = draw.clone()
        if gradient == 0:
            options = {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}
            plain = torch.optim.SGD(bare.parameters(), **options)
            base = torch.optim.SGD(model.parameters(), **options)
            optimizer = bcsc.BlockCyclic(base, 3, mask=mask, exclude=[model[2].bias])
        plain.step()
        optimizer.step()
        assert torch.equal(model[2].bias, bare[2].bias)
        assert torch.equal(model[2].bias.grad, draws[1])
    assert [p.shape for p in optimizer.epoch_blocks().parameters] == [(3, 5)]
    assert not torch.equal(model[2].weight, bare[2].weight)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("align", [False, True])
def test_parameters_of_all_kinds_go_as_far_as_they_should(align: bool, granularity: str) -> None:
    """Every gradient is that of before, so the cosine is 1; a step without any gradient moves nothing."""
    kinds = [((3,), torch.float32), ((2, 2), torch.float64), ((2,), torch.complex64), ((4,), torch.bfloat16)]
    shaped = [*kinds, ((), torch.float32), ((0, 3), torch.float32), ((2, 3, 4, 4), torch.float32)]
    own = [nn.Parameter(torch.ones(shape, dtype=dtype)) for shape, dtype in shaped]
    own[-1].data = own[-1].data.to(memory_format=torch.channels_last)
    options = {"order": "bernoulli", "align": align, "rescale": True, "granularity": granularity}
    optimizer = bcsc.BlockCyclic(torch.optim.SGD(own, lr=1 / 64), 2, **options)
    optimizer.step()
    assert all((p == 1).all() for p in own)
    expected, score = [p.detach().clone() for p in own], 1.0
    for _ in range(5):
        for p in own:
            p.grad = torch.ones_like(p)
        labels, block = optimizer.epoch_blocks().labels, optimizer.block
        score = 0.9 * score + 0.1 * torch.sigmoid(torch.tensor(0.5, dtype=torch.float64)).item()
        move = 2 / 64 * (score if align else 1.0)
        expected = [torch.where(own == block, w - move, w) for w, own in zip(expected, labels, strict=True)]
        optimizer.step()
    for p, w in zip(own, expected, strict=True):
        torch.testing.assert_close(p.detach(), w, rtol=0.02 if p.dtype == torch.bfloat16 else 1e-6, atol=0)
    assert sum((w != 1).sum().item() for w in expected) > 20


def test_a_scaled_loss_changes_nothing() -> None:
    plain, scaled = network(), network()
    optimizers = [bcsc.BlockCyclic(BASES["SGD"](m.parameters()), 2, **OPTIONS["magma"]) for m in (plain, scaled)]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(6):
        train(plain, optimizers[0], range(step, step + 1))
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
        optimizers[1].zero_grad()
        scaler.scale(scaled(x).square().mean()).backward()
        scaler.step(optimizers[1])
        scaler.update()
    assert torch.equal(vector(plain), vector(scaled))


def test_the_alignment_is_half_for_gradients_that_vanish_and_counts_complex_numbers_as_two() -> None:
    zero, one = torch.zeros(2, 3), torch.ones(2, 3)
    assert torch.equal(alignment(zero, one, (2, 1)), torch.full((2, 1), 0.5))
    torch.testing.assert_close(alignment(one, one, (1, 1)), torch.sigmoid(torch.tensor([[0.5]])))
    torch.testing.assert_close(alignment(one, -one, (1, 1)), torch.sigmoid(torch.tensor([[-0.5]])))
    torch.testing.assert_close(alignment(one * 1e-15, one * 1e-15, (1, 1)), torch.sigmoid(torch.tensor([[0.5]])))
    torch.testing.assert_close(alignment(one * 1e-30, one * 1e-30, (1, 1)), torch.tensor([[0.5]]))
    turned = torch.tensor([1 + 0j]), torch.tensor([0 + 1j])
    torch.testing.assert_close(alignment(*turned, (1,)), torch.tensor([0.5]))
    assert alignment(torch.zeros(0, 4), torch.zeros(0, 4), (0, 1)).shape == (0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rescale": True, "mask": "gradient"}, 'rescale=True .* mask="update"'),
        ({"align": True, "mask": "all"}, 'align=True .* mask="update"'),
        ({"align": 1}, "align must be True or False, got 1"),
        ({"redraw": 0}, "redraw must be a whole number of at least 1"),
        ({"redraw": 2, "order": "bernoulli"}, "draws anew at every step, got redraw=2"),
        ({"exclude": [torch.zeros(2)]}, r"a tensor of shape \(2,\) that is none of them"),
        ({"exclude": ["0.weight"]}, "got '0.weight' that is none of them"),
        ({"exclude": torch.nn.Linear(2, 2)}, "got something of type Linear that is none of them"),
        ({"exclude": [("0.weight", torch.zeros(2))]}, "got something of type tuple that is none of them"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        bcsc.BlockCyclic(BASES["SGD"](network().parameters()), 2, **options)


@pytest.mark.parametrize("base", BASES)
def test_magma_is_that_of_others_given_the_same_masks(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    magma = pytest.importorskip("magma", reason="pip install magma-optimizer")
    theirs, ours = network(torch.float64), network(torch.float64)
    optimizer = bcsc.BlockCyclic(
        BASES[base](ours.parameters()), 2, order="bernoulli", align=True, granularity="tensor", exclude=[ours[2].bias]
    )
    other = magma.Magma(BASES[base](theirs.parameters()), exclude={theirs[2].bias})
    for step in range(40):
        blocks, block = optimizer.epoch_blocks(), optimizer.block
        masks = iter([float((labels == block).all()) for labels in blocks.labels])
        monkeypatch.setattr(torch, "bernoulli", lambda *_, masks=masks: torch.tensor(next(masks)))
        train(theirs, other, range(step, step + 1))
        train(ours, optimizer, range(step, step + 1))
        torch.testing.assert_close(vector(ours), vector(theirs), rtol=0, atol=1e-7)  # their scores are of float32


@pytest.mark.parametrize("num_blocks", [1, 2, 5])
def test_a_rescaled_block_goes_as_many_times_as_far_as_there_are_blocks(num_blocks: int) -> None:
    p = nn.Parameter(torch.zeros(10))
    p.grad = torch.ones(10)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.25), num_blocks, rescale=True)
    (labels,) = optimizer.epoch_blocks().labels
    optimizer.step()
    assert torch.equal(p, torch.where(labels == 0, -0.25 * num_blocks, 0.0))


def test_an_order_that_draws_at_every_step_is_told_so_or_nothing() -> None:
    options = {"rescale": False, "align": False}
    for order, redraw in (("bernoulli", None), ("bernoulli", 1), ("cyclic", 1), ("cyclic", 2), ("random", 3)):
        check_moves("update", order, redraw, **options)
    says = '^order="bernoulli" draws anew at every step, got redraw=2. Leave it out.$'
    with pytest.raises(InvalidArgumentError, match=says):
        check_moves("update", "bernoulli", 2, **options)


@pytest.mark.parametrize("name", ["rescale", "align"])
def test_moves_are_multiplied_where_the_mask_tells_them_from_the_rest(name: str) -> None:
    options = {"rescale": False, "align": False}
    check_moves("update", "cyclic", None, **{**options, name: True})
    for mask in ("gradient", "all"):
        check_moves(mask, "cyclic", None, **options)
        with pytest.raises(InvalidArgumentError, match=f"^{name}=True multiplies .* which mask='{mask}' does not tell"):
            check_moves(mask, "cyclic", None, **{**options, name: True})
    with pytest.raises(InvalidArgumentError, match=f"^{name} must be True or False, got 1.$"):
        check_moves("update", "cyclic", None, **{**options, name: 1})


def test_what_is_excluded_is_named_where_the_base_does_not_have_it() -> None:
    own = [torch.zeros(2), torch.zeros(3, 1)]
    assert checked_exclusion(own[1], own) == checked_exclusion(iter(own[1:]), own) == (own[1],)
    named = {"'bias'": "bias", "something of type int": 3, "a tensor of shape (2,)": torch.zeros(2)}
    for what, wrong in named.items():
        says = f"^exclude takes parameters of the base, got {re.escape(what)} that is none of them. Give for instance"
        for exclude in (wrong, [own[0], wrong]):
            with pytest.raises(InvalidArgumentError, match=says):
                checked_exclusion(exclude, own)


def test_an_alignment_that_does_not_fit_is_named() -> None:
    parameters = [torch.zeros(2, 3, requires_grad=True), torch.zeros(4, requires_grad=True)]
    kept = Alignment("tensor").state_of(parameters)
    kept[1]["average"] = torch.zeros(5)
    says = (
        r"average in the alignment of parameter 1 is torch.float32 of shape \(5,\), "
        r"should be torch.float32 of shape \(4,\)\."
    )
    with pytest.raises(StateMismatchError, match=says):
        Alignment("tensor").checked(kept, parameters)
