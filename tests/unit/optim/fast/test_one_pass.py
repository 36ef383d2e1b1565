"""The fast way of a step: taken where it can be, and no crash where it cannot."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import bcsc
from bcsc.choices import MASKS
from bcsc.kernels import passes
from bcsc.optim import block_cyclic
from bcsc.optim.fast import layout, one_pass
from tests.unit.optim.fast.both_ways import assert_same_outcome, is_taken, steps_of, trained
from tests.unit.runs import tiny_run
from tests.without_numba import without_numba

pytest.importorskip("numba")

BASES = {
    "plain sgd": partial(torch.optim.SGD, lr=0.1),
    "sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "fused sgd": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True),
    "adam": partial(torch.optim.Adam, lr=0.1, weight_decay=0.01, fused=True),
    "adamw": partial(torch.optim.AdamW, lr=0.1, weight_decay=0.01, fused=True),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
def test_large_tensors_and_several_threads_give_the_bits_of_the_general_way(base: str, mask: str) -> None:
    before = torch.get_num_threads()
    problem = {"shapes": [[300_007], [11, 3, 5, 5]], "dtype": torch.float32, "layout": "channels_last", "seed": 0}
    problem |= {"mask": mask, "granularity": "element"}
    try:
        torch.set_num_threads(2)
        fast, general = (trained(BASES[base], problem, fast=fast) for fast in (True, False))
    finally:
        torch.set_num_threads(before)
    assert fast.taken[-1]
    assert_same_outcome(fast, general)


@pytest.mark.parametrize("base", BASES)
def test_steps_on_tensors_that_are_as_before_do_not_look_at_each_of_them_again(base: str, monkeypatch) -> None:
    p, looked = nn.Parameter(torch.ones(10)), []
    fits = layout.Layout._fits
    monkeypatch.setattr(layout.Layout, "_fits", lambda self, rows: looked.append(rows) or fits(self, rows))
    optimizer = bcsc.BlockCyclic(BASES[base]([p]), 2)
    for _ in range(2):
        steps_of(optimizer, p)
    before = len(looked)
    steps_of(optimizer, p)
    assert 0 < before == len(looked)


@pytest.mark.parametrize("base", BASES)
def test_what_it_cannot_do_is_left_to_the_general_way(base: str) -> None:
    build, p = BASES[base], nn.Parameter(torch.ones(10))
    assert is_taken(build([p]), p)
    watched = build([p])
    watched.register_step_pre_hook(lambda *_: None)
    assert not is_taken(watched, p)
    scaled = build([p])
    scaled.grad_scale = None
    assert not is_taken(scaled, p)
    half = nn.Parameter(torch.ones(10, dtype=torch.bfloat16))
    assert not is_taken(build([half]), half)
    gaps = nn.Parameter(torch.ones(10, 2)[:, 0])
    assert not is_taken(build([gaps]), gaps)
    assert not is_taken(torch.optim.Adagrad([p]), p)


def turn(p, base):
    p.data, p.grad = p.data.t(), p.grad.t()


def turn_momentum(p, base):
    base.state[p]["momentum_buffer"] = base.state[p]["momentum_buffer"].t()


def turn_gradient(p, base):
    p.grad = p.grad.t()


def change_rate(p, base):
    base.param_groups[0]["lr"] = 0.7


def move(p, base):
    p.data, p.grad = p.data.clone(), p.grad.clone()
    base.state[p]["momentum_buffer"] = base.state[p]["momentum_buffer"].clone()


@pytest.mark.parametrize(
    ("change", "could"),
    [(turn, False), (turn_momentum, False), (turn_gradient, False), (change_rate, True), (move, True)],
)
def test_what_changes_between_two_steps_is_noticed(change, could: bool, monkeypatch) -> None:
    def after(way) -> tuple[bool, list[torch.Tensor]]:
        taken: list[bool] = []
        monkeypatch.setattr(block_cyclic, "step_in_one_pass", lambda *a: taken.append(way(*a)) or taken[-1])
        p = nn.Parameter(torch.linspace(-1, 1, 36).view(6, 6))
        base = torch.optim.SGD([p], lr=0.1, momentum=0.9)
        optimizer = bcsc.BlockCyclic(base, 2)
        steps_of(optimizer, p)
        p.grad = torch.linspace(-1, 2, 36).view(6, 6)
        change(p, base)
        optimizer.step()
        return taken[-1], [p.detach(), base.state[p]["momentum_buffer"]]

    (was_taken, fast), (_, general) = after(one_pass.step_in_one_pass), after(lambda *_: False)
    assert was_taken == could
    assert all(map(torch.equal, fast, general))


def test_a_gradient_of_another_type_is_noticed() -> None:
    p = nn.Parameter(torch.ones(10))
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1), 2)
    steps_of(optimizer, p)
    p.data = p.data.double()
    assert not one_pass.step_in_one_pass(optimizer.base, optimizer.epoch_blocks(), 0, "update")
    p.grad = torch.ones(10, dtype=torch.float64)
    assert one_pass.step_in_one_pass(optimizer.base, optimizer.epoch_blocks(), 0, "update")


def test_parameters_that_are_twice_in_the_groups_are_left_to_the_general_way() -> None:
    p = nn.Parameter(torch.ones(10))
    base = torch.optim.SGD([p], lr=0.1)
    base.param_groups.append({**base.param_groups[0], "lr": 0.2})
    assert not is_taken(base, p)
    base.param_groups[:] = [{**base.param_groups[0], "params": [p, p]}]
    assert not is_taken(base, p)


def test_a_frozen_parameter_stays_where_it_is() -> None:
    p, frozen = nn.Parameter(torch.ones(10)), nn.Parameter(torch.ones(10), requires_grad=False)
    frozen.grad = torch.ones(10)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p, frozen], lr=0.1), 2)
    assert is_taken(optimizer.base, p)
    assert frozen.eq(1).all()
    assert optimizer.state == {}


def test_a_graph_that_has_kept_a_parameter_notices_that_it_has_moved() -> None:
    p, x = nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1), 2)
    product = (p * x).sum()
    p.grad = torch.ones(3)
    assert one_pass.step_in_one_pass(optimizer.base, optimizer.epoch_blocks(), 0, "update")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("mask", MASKS)
def test_a_run_measures_the_same_with_and_without_numba(mask: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    real = one_pass.step_in_one_pass
    monkeypatch.setattr(block_cyclic, "step_in_one_pass", lambda *a: calls.append(real(*a)) or calls[-1])
    fast = tiny_run.train(tmp_path / "with", mask=mask, epochs=2).history
    with without_numba():
        general = tiny_run.train(tmp_path / "without", mask=mask, epochs=2).history
    assert any(calls[: len(calls) // 2])
    assert not any(calls[len(calls) // 2 :])
    for one, other in zip(fast, general, strict=True):
        assert (one.train_loss, one.train_loss_std, one.test_loss, one.test_accuracy) == (
            other.train_loss,
            other.train_loss_std,
            other.test_loss,
            other.test_accuracy,
        )


MISTAKES = ["fails", "rounds otherwise", "moves everything"]


@pytest.mark.parametrize("base", ["fused sgd", "adamw"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_kernel_that_fails_or_rounds_or_masks_otherwise_is_not_used(mistake: str, base: str, monkeypatch) -> None:
    real = one_pass.compiled

    def compiled(recipe, dtype, label_dtype):
        def kernel(addresses, rows, begin, end, width, sizes, block, zero, number, *numbers):
            if mistake == "fails":
                raise SystemError("LLVM is out of order")
            wrong = recipe._replace(mask="gradient") if mistake == "moves everything" else recipe
            number = type(zero)(number * 1.0000001 if mistake == "rounds otherwise" else number)
            numbers = (addresses, rows, begin, end, width, sizes, block, zero, number, *numbers)
            real(wrong, dtype, label_dtype)(*numbers)

        return kernel

    monkeypatch.setattr(one_pass, "compiled", compiled)
    monkeypatch.setattr(passes, "TOLD", [])
    one_pass.rounding_width.cache_clear()
    try:
        p = nn.Parameter(torch.ones(10))
        optimizer = bcsc.BlockCyclic(BASES[base]([p]), 2)
        if mistake == "fails":
            with pytest.warns(RuntimeWarning, match="Numba is installed but does not work here") as told:
                moved = steps_of(optimizer, p)
            assert len(told) == 1
        else:
            moved = steps_of(optimizer, p)
        assert (moved != 1).all()
        assert not one_pass.step_in_one_pass(optimizer.base, optimizer.epoch_blocks(), 0, "update")
    finally:
        one_pass.rounding_width.cache_clear()


@pytest.mark.parametrize("mask", MASKS)
def test_a_step_in_one_pass_moves_the_block_and_nothing_else(mask: str) -> None:
    p = nn.Parameter(torch.zeros(10))
    p.grad = torch.ones(10)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.25), 2, mask=mask)
    (labels,) = optimizer.epoch_blocks().labels
    assert one_pass.step_in_one_pass(optimizer.base, optimizer.epoch_blocks(), 1, mask)
    assert torch.equal(p, torch.where(labels == 1, -0.25, 0.0))


def test_a_loop_is_given_the_block_in_the_type_of_the_labels_and_a_zero_in_that_of_the_numbers() -> None:
    p = nn.Parameter(torch.zeros(10))
    p.grad = torch.ones(10)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.25), 2)
    one = one_pass.pass_over(optimizer.base, optimizer.param_groups[0], [p], optimizer.epoch_blocks(), ("update", 1))
    block, zero = one.arguments[2:4]
    assert (block, zero) == (1, 0)
    assert (type(block), type(zero)) == (np.uint8, np.float32)
