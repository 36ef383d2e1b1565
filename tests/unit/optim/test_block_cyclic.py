"""``BlockCyclic`` is a whole optimizer: what people trip over in wrappers holds here."""

import copy
import io
import itertools
import pickle
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, StepLR

import bcsc
from bcsc.errors import InvalidArgumentError, StateMismatchError, UnsupportedOptimizerError
from bcsc.optim.block_cyclic import shared_with_base

MASKS = ["update", "gradient", "all"]


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def batch(step: int) -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(step))


def loss_of(model: nn.Module, step: int) -> Tensor:
    return model(batch(step)).square().mean()


def sgd(model: nn.Module, **options) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, **options})


def train(model: nn.Module, optimizer: bcsc.BlockCyclic, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def vector(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


@given(st.integers(1, 53), st.sampled_from(["element", "row", "tensor"]), st.sampled_from(["update", "all"]))
def test_outside_the_active_block_parameters_keep_their_bits(num_blocks, granularity, mask) -> None:
    model = network()
    limit = {"element": 53, "row": 16, "tensor": 4}[granularity]
    optimizer = bcsc.BlockCyclic(sgd(model), min(num_blocks, limit), granularity=granularity, mask=mask)
    for step in range(3):
        before = [p.detach().clone() for p in model.parameters()]
        block, labels = optimizer.block, optimizer.epoch_blocks().labels
        train(model, optimizer, range(step, step + 1))
        moved = [p.detach() != old for p, old in zip(model.parameters(), before, strict=True)]
        for here, p_labels in zip(moved, labels, strict=True):
            assert not (here & (p_labels != block)).any()
        assert any(here.any() for here in moved)


def test_within_a_cycle_every_scalar_moves() -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 8)
    before = vector(model)
    train(model, optimizer, range(8))
    assert (vector(model) != before).all()


def test_every_epoch_has_blocks_of_its_own_and_only_one_byte_per_scalar_is_kept() -> None:
    model = nn.Linear(100, 50)
    optimizer = bcsc.BlockCyclic(sgd(model), 256)
    first = [labels.clone() for labels in optimizer.epoch_blocks().labels]
    assert sum(labels.nbytes for labels in first) == 5050
    optimizer.set_epoch(1)
    second = optimizer.epoch_blocks().labels
    assert not torch.equal(first[0], second[0])
    optimizer.set_epoch(0)
    assert torch.equal(first[0], optimizer.epoch_blocks().labels[0])


def test_the_position_is_readable_and_runs_through_the_cycle() -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 3)
    seen = []
    for epoch in range(2):
        optimizer.set_epoch(epoch)
        for step in range(4):
            seen.append((optimizer.epoch, optimizer.inner_step, optimizer.block))
            train(model, optimizer, range(step, step + 1))
    assert seen == [(epoch, step, step % 3) for epoch in range(2) for step in range(4)]


def test_steps_per_epoch_turns_epochs_over_as_set_epoch_would() -> None:
    by_hand, by_itself = network(), network()
    optimizer = bcsc.BlockCyclic(sgd(by_hand), 4)
    for epoch in range(3):
        optimizer.set_epoch(epoch)
        train(by_hand, optimizer, range(8 * epoch, 8 * epoch + 8))
    automatic = bcsc.BlockCyclic(sgd(by_itself), 4, steps_per_epoch=8)
    train(by_itself, automatic, range(24))
    assert torch.equal(vector(by_hand), vector(by_itself))
    assert (automatic.epoch, automatic.inner_step) == (3, 0)


def test_random_order_draws_every_block_equally_often() -> None:
    optimizer = bcsc.BlockCyclic(sgd(network()), 4, order="random")
    drawn = []
    for _ in range(2000):
        drawn.append(optimizer.block)
        optimizer.step()
    counts = torch.bincount(torch.tensor(drawn), minlength=4)
    assert ((counts - 500) ** 2 / 500).sum() < 31  # 3 degrees of freedom: once in a million


def test_a_seed_and_an_epoch_give_the_random_blocks_that_they_always_gave() -> None:
    """Else the records of runs with random blocks could not be repeated."""
    drawn = {}
    for seed, epoch in ((0, 0), (0, 1), (7, 0)):
        optimizer = bcsc.BlockCyclic(sgd(network()), 10, seed=seed, order="random")
        optimizer.set_epoch(epoch)
        drawn[seed, epoch] = "".join(str(optimizer.block_at(step)) for step in range(12))
    assert drawn == {(0, 0): "415925325131", (0, 1): "092962870761", (7, 0): "556788903552"}


@pytest.mark.parametrize("on_base", [True, False])
def test_a_scheduler_on_either_drives_both(on_base: bool) -> None:
    model = network()
    base = sgd(model)
    optimizer = bcsc.BlockCyclic(base, 2)
    scheduler = StepLR(base if on_base else optimizer, step_size=1, gamma=0.5)
    train(model, optimizer, range(1))
    scheduler.step()
    assert base.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == 0.05
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer, range(1))
    scheduler.step()
    assert base.param_groups is optimizer.param_groups
    assert base.param_groups[0]["lr"] == 0.025


@pytest.mark.parametrize("mask", MASKS)
def test_the_closure_runs_once_with_gradients_on_and_its_loss_is_returned(mask: str) -> None:
    by_closure, by_hand = network(), network()
    optimizer, other = (bcsc.BlockCyclic(sgd(m), 3, mask=mask) for m in (by_closure, by_hand))
    calls = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(by_closure, 0)
        loss.backward()
        calls.append(loss)
        return loss

    assert optimizer.step(closure) is calls[0]
    assert len(calls) == 1
    train(by_hand, other, range(1))
    assert torch.equal(vector(by_closure), vector(by_hand))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("num_blocks", [1, 3])
def test_gradients_are_left_as_the_user_left_them(mask: str, num_blocks: int) -> None:
    model = network()
    base = sgd(model, weight_decay=0, nesterov=True, foreach=True)  # writes into the gradients it is given
    optimizer = bcsc.BlockCyclic(base, num_blocks, mask=mask)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        gradients = [p.grad for p in model.parameters()]
        values = [g.clone() for g in gradients]
        optimizer.step()
        assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
        assert all(torch.equal(g, value) for g, value in zip(gradients, values, strict=True))


@pytest.mark.parametrize("mask", MASKS)
def test_gradients_come_back_when_the_base_fails(mask: str) -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 3, mask=mask)
    loss_of(model, 0).backward()
    gradients = [p.grad for p in model.parameters()]
    optimizer.param_groups[0]["lr"] = "no number"
    with pytest.raises(TypeError, match="bad operand|must be"):
        optimizer.step()
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
    assert optimizer.inner_step == 0


BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
}


NUM_EPOCHS, STEPS_PER_EPOCH = 3, 10
DATA = torch.randn(8, 6, generator=torch.Generator().manual_seed(9))


def build_run(base: str, mask: str, seed: int) -> tuple:
    model = network()
    optimizer = bcsc.BlockCyclic(BASES[base](model.parameters()), 5, mask=mask, seed=seed)
    sampler = bcsc.BlockCyclicSampler(len(DATA), 4, 5, seed=seed)
    return model, optimizer, sampler, CosineAnnealingLR(optimizer, T_max=NUM_EPOCHS * STEPS_PER_EPOCH)


def go_on(model, optimizer, sampler, scheduler, stop_at: int | None = None) -> None:
    for epoch in range(optimizer.epoch, NUM_EPOCHS):
        optimizer.set_epoch(epoch)
        sampler.set_epoch(epoch)
        for indices in sampler:
            optimizer.zero_grad()
            model(DATA[indices]).square().mean().backward()
            optimizer.step()
            scheduler.step()
            if scheduler.last_epoch == stop_at:
                return


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seed", range(4))
def test_a_run_resumed_at_any_inner_step_gives_the_same_bits(base: str, mask: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    stop = int(torch.randint(1, NUM_EPOCHS * STEPS_PER_EPOCH, (), generator=generator))
    unbroken, broken, resumed = (build_run(base, mask, seed) for _ in range(3))
    go_on(*unbroken)
    go_on(*broken, stop_at=stop)
    file = io.BytesIO()
    torch.save([part.state_dict() for part in broken], file)
    file.seek(0)
    for part, state in zip(resumed, torch.load(file, weights_only=True), strict=True):
        part.load_state_dict(state)
    go_on(*resumed)
    assert torch.equal(vector(resumed[0]), vector(unbroken[0]))
    resumed_state, unbroken_state = resumed[1].state_dict(), unbroken[1].state_dict()
    torch.testing.assert_close(resumed_state["state"], unbroken_state["state"], rtol=0, atol=0)
    for name in ("param_groups", "block_cyclic"):
        assert resumed_state[name] == unbroken_state[name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_blocks": 4}, "num_blocks was 3, is 4"),
        ({"seed": 1}, "seed was 0, is 1"),
        ({"mask": "all"}, "mask was 'update', is 'all'"),
        ({"granularity": "row"}, "granularity was 'element', is 'row'"),
        ({"order": "random", "steps_per_epoch": 2}, "order was 'cyclic', is 'random'; steps_per_epoch was None, is 2"),
    ],
)
def test_a_state_of_another_set_up_is_refused_and_changes_nothing(change: dict, message: str) -> None:
    saved_model, model = network(), network()
    saved = bcsc.BlockCyclic(sgd(saved_model), 3)
    train(saved_model, saved, range(2))
    optimizer = bcsc.BlockCyclic(sgd(model), **{"num_blocks": 3, **change})
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(StateMismatchError, match=message):
        optimizer.load_state_dict(saved.state_dict())
    assert optimizer.state_dict() == before


def test_a_state_of_another_network_or_base_or_a_bare_one_is_refused() -> None:
    optimizer = bcsc.BlockCyclic(sgd(network()), 3)
    with pytest.raises(StateMismatchError, match="no entry 'block_cyclic'.*load it into optimizer.base"):
        optimizer.load_state_dict(sgd(network()).state_dict())
    with pytest.raises(StateMismatchError, match=r"not these, which are 4 tensors of 53 scalars \(5x6, 5, 3x5, 3\)"):
        optimizer.load_state_dict(bcsc.BlockCyclic(sgd(nn.Linear(6, 2)), 3).state_dict())
    with pytest.raises(StateMismatchError, match="base was 'Adam', is 'SGD'"):
        optimizer.load_state_dict(bcsc.BlockCyclic(torch.optim.Adam(network().parameters()), 3).state_dict())
    broken = optimizer.state_dict()
    broken["param_groups"] = []
    with pytest.raises(StateMismatchError, match="should have 1 groups of parameters, has"):
        optimizer.load_state_dict(broken)
    late = optimizer.state_dict()
    late["block_cyclic"]["step"] = -1
    with pytest.raises(InvalidArgumentError, match="step must be a whole number of at least 0, got -1"):
        optimizer.load_state_dict(late)


def test_hooks_run() -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 3)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before step"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after step"))
    optimizer.register_state_dict_pre_hook(lambda _: calls.append("before state"))
    optimizer.register_state_dict_post_hook(lambda _, state: calls.append("after state"))
    optimizer.register_load_state_dict_pre_hook(lambda _, state: calls.append("before load"))
    optimizer.register_load_state_dict_post_hook(lambda _: calls.append("after load"))
    train(model, optimizer, range(1))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before step", "after step", "before state", "after state", "before load", "after load"]


@pytest.mark.parametrize("mask", MASKS)
def test_hooks_of_the_base_run_once_a_step(mask: str) -> None:
    model = network()
    base = torch.optim.AdamW(model.parameters())
    calls = []
    base.register_step_post_hook(lambda *_: calls.append(1))
    train(model, bcsc.BlockCyclic(base, 3, mask=mask), range(6))
    assert len(calls) == 6


@pytest.mark.parametrize(
    "wrong", [None, [1], {}, {"block_cyclic": None}, {"block_cyclic": {"epoch": 0}}, {"state": None}]
)
def test_what_is_no_state_at_all_is_refused(wrong) -> None:
    optimizer = bcsc.BlockCyclic(sgd(network()), 3)
    with pytest.raises(StateMismatchError, match="block_cyclic|lacks"):
        optimizer.load_state_dict(wrong)
    for part in ("state", "param_groups"):
        with pytest.raises(StateMismatchError, match="not of this optimizer"):
            optimizer.load_state_dict({**optimizer.state_dict(), part: None})


def test_settings_changed_inside_an_epoch_take_effect_at_once() -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 3)
    train(model, optimizer, range(1))
    optimizer.num_blocks = 5
    before = vector(model)
    train(model, optimizer, range(5))
    assert (vector(model) != before).all()


def test_grad_scaler_works_and_a_skipped_step_does_not_count() -> None:
    scaled, plain = network(), network()
    optimizer, other = bcsc.BlockCyclic(sgd(scaled), 3), bcsc.BlockCyclic(sgd(plain), 3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(loss_of(scaled, step)).backward()
        scaler.step(optimizer)
        scaler.update()
    train(plain, other, range(4))
    torch.testing.assert_close(vector(scaled), vector(plain))
    before = vector(scaled)
    (loss_of(scaled, 0) * float("inf")).backward()
    scaler.step(optimizer)
    assert optimizer.inner_step == 4
    assert torch.equal(vector(scaled), before)


def test_clipping_and_accumulation_work() -> None:
    model, twin = network(), network()
    optimizer, other = bcsc.BlockCyclic(sgd(model), 3), bcsc.BlockCyclic(sgd(twin), 3)
    for step in range(3):
        for part in batch(step).chunk(2):
            (model(part).square().mean() / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
        loss_of(twin, step).backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.01)
        other.step()
        other.zero_grad()
    torch.testing.assert_close(vector(model), vector(twin))


@pytest.mark.parametrize("mask", MASKS)
def test_frozen_parameters_stay_and_are_in_no_block(mask: str) -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 2, mask=mask)
    train(model, optimizer, range(2))
    model[0].requires_grad_(False)  # with a gradient left over
    before = vector(model[0])
    gradient = model[0].weight.grad
    for _ in range(3):
        model[2].zero_grad()
        loss_of(model, 5).backward()
        optimizer.step()
    assert torch.equal(vector(model[0]), before)
    assert model[0].weight.grad is gradient
    assert sum(labels.numel() for labels in optimizer.epoch_blocks().labels) == 18


@pytest.mark.parametrize("mask", MASKS)
def test_parameters_without_gradient_are_left_alone(mask: str) -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 2, mask=mask)
    before = vector(model[0])
    for _ in range(2):
        model[2](torch.ones(1, 5)).sum().backward()
        optimizer.step()
    assert torch.equal(vector(model[0]), before)
    assert model[0].weight.grad is None


def test_tied_parameters_are_counted_once() -> None:
    embedding, head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    optimizer = bcsc.BlockCyclic(sgd(model), 4)
    model(torch.arange(7)).square().sum().backward()
    optimizer.step()
    assert sum(labels.numel() for labels in optimizer.epoch_blocks().labels) == 28
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the duplicate
        twice = bcsc.BlockCyclic(torch.optim.SGD([head.weight, embedding.weight], lr=0.1), 4)
    twice.step()
    assert sum(labels.numel() for labels in twice.epoch_blocks().labels) == 28


@pytest.mark.parametrize("mask", MASKS)
def test_groups_keep_their_own_options_and_may_be_added(mask: str) -> None:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.0, "weight_decay": 0.0}, {"params": [model[2].weight]}]
    optimizer = bcsc.BlockCyclic(torch.optim.SGD(groups, lr=0.1, momentum=0.9), 4, mask=mask)
    train(model, optimizer, range(3))
    optimizer.add_param_group({"params": [model[2].bias], "lr": 0.5})
    assert len(optimizer.base.param_groups) == 3
    before = vector(model[0]), model[2].bias.detach().clone()
    train(model, optimizer, range(3, 8))
    assert torch.equal(vector(model[0]), before[0])
    assert (model[2].bias != before[1]).all()
    assert sum(labels.numel() for labels in optimizer.epoch_blocks().labels) == 53


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_other_number_types_work(mask: str, dtype: torch.dtype) -> None:
    p = nn.Parameter(torch.ones(9, dtype=dtype))
    optimizer = bcsc.BlockCyclic(torch.optim.Adam([p], lr=0.1), 3, mask=mask)
    for _ in range(3):
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert p.dtype == dtype
    assert (p != 1).all()


@pytest.mark.parametrize("mask", MASKS)
def test_the_memory_layout_changes_nothing(mask: str) -> None:
    def run(memory_format: torch.memory_format) -> Tensor:
        weights = torch.randn(8, 3, 5, 5, generator=torch.Generator().manual_seed(0))
        p = nn.Parameter(weights.to(memory_format=memory_format))
        optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1, momentum=0.9), 3, mask=mask)
        for step in range(4):
            p.grad = torch.full_like(p, 1.0 + step)
            optimizer.step()
        return p.detach().contiguous()

    assert torch.equal(run(torch.channels_last), run(torch.contiguous_format))


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_like_the_original(make_copy) -> None:
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 3, mask="all")
    train(model, optimizer, range(4))
    twin, twin_optimizer = make_copy((model, optimizer))
    train(model, optimizer, range(4, 9))
    train(twin, twin_optimizer, range(4, 9))
    assert torch.equal(vector(model), vector(twin))
    assert twin_optimizer.inner_step == 9


def test_nothing_but_the_step_moves_the_global_random_state() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    model = network()
    optimizer = bcsc.BlockCyclic(sgd(model), 3)
    train(model, optimizer, range(3))
    list(bcsc.BlockCyclicSampler(10, 3, 2))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_sparse_gradient_is_refused_before_anything_moves() -> None:
    model = nn.Embedding(5, 3, sparse=True)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD(model.parameters(), lr=0.1), 3)
    before = vector(model)
    model(torch.tensor([1])).sum().backward()
    with pytest.raises(UnsupportedOptimizerError, match="needs dense gradients, got one of layout torch.sparse_coo"):
        optimizer.step()
    assert torch.equal(vector(model), before)
    assert optimizer.inner_step == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_blocks": 0}, "num_blocks must be a whole number of at least 1, got 0"),
        ({"num_blocks": True}, "num_blocks .* got True"),
        ({"num_blocks": 2.0}, "num_blocks .* got 2.0"),
        ({"num_blocks": 54}, "num_blocks=54 is more than the 53 trainable scalars"),
        ({"num_blocks": 5, "granularity": "tensor"}, "the 4 trainable tensors.*finer granularity"),
        ({"num_blocks": 2, "mask": "updates"}, "mask must be one of update, gradient, all, got 'updates'.*'update'"),
        ({"num_blocks": 2, "granularity": "rows"}, "granularity must be one of element, row, tensor"),
        ({"num_blocks": 2, "order": "random "}, "order must be one of cyclic, random"),
        ({"num_blocks": 2, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"num_blocks": 2, "steps_per_epoch": 0}, "steps_per_epoch .* got 0"),
        ({"num_blocks": 2, "redraw": 0}, "redraw .* got 0"),
        ({"num_blocks": 2, "redraw": 0, "order": "bernoulli"}, "redraw must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        bcsc.BlockCyclic(sgd(network()), **options)


def test_bases_that_cannot_work_are_refused() -> None:
    model = network()
    with pytest.raises(UnsupportedOptimizerError, match="must be a torch.optim.Optimizer, got generator"):
        bcsc.BlockCyclic(model.parameters(), 2)
    with pytest.raises(UnsupportedOptimizerError, match="already steps block by block"):
        bcsc.BlockCyclic(bcsc.BlockCyclic(sgd(model), 2), 2)
    with pytest.raises(UnsupportedOptimizerError, match="differentiable=True"):
        bcsc.BlockCyclic(sgd(model, differentiable=True), 2)
    with pytest.raises(UnsupportedOptimizerError, match="differentiable=True"):
        bcsc.BlockCyclic(sgd(model), 2).add_param_group({"params": [torch.zeros(1)], "differentiable": True})
    with pytest.raises(InvalidArgumentError, match="no trainable parameters"):
        bcsc.BlockCyclic(sgd(network().requires_grad_(False)), 1)
    with pytest.raises(InvalidArgumentError, match="or they are all excluded"):
        bcsc.BlockCyclic(sgd(model), 1, exclude=model.parameters())
    with pytest.raises(InvalidArgumentError, match="epoch must be a whole number"):
        bcsc.BlockCyclic(sgd(model), 2).set_epoch("1")


def test_whole_numbers_of_numpy_are_kept_as_those_of_python() -> None:
    """Which a checkpoint can hold that runs no code."""
    model, two = network(), np.int64(2)
    optimizer = bcsc.BlockCyclic(sgd(model), two, steps_per_epoch=np.int64(10), redraw=two, seed=two)
    batches = bcsc.BlockCyclicSampler(np.int64(8), two, two, seed=two)
    for each in (optimizer, batches):
        each.set_epoch(np.int64(3))
        buffer = io.BytesIO()
        torch.save(each.state_dict(), buffer)
        buffer.seek(0)
        assert torch.load(buffer, weights_only=True) == each.state_dict()
    plain = bcsc.BlockCyclic(sgd(model), 2, steps_per_epoch=10, redraw=2, seed=2)
    plain.load_state_dict(optimizer.state_dict())
    assert plain.epoch == 3


def test_a_rate_of_numpy_and_other_names_of_the_parameters_are_loaded() -> None:
    named, renamed = (
        torch.optim.SGD([(f"{prefix}{name}", p) for name, p in network().named_parameters()], lr=0.1)
        for prefix in ("", "module.")
    )
    one, other = bcsc.BlockCyclic(named, 3), bcsc.BlockCyclic(renamed, 3)
    one.param_groups[0]["lr"] = np.float64(0.05)
    other.load_state_dict(one.state_dict())
    assert other.param_groups[0]["lr"] == 0.05


def test_the_device_that_new_tensors_are_made_on_changes_nothing() -> None:
    def trained_and_sampled(device: str) -> tuple[Tensor, list[list[int]]]:
        model = network()
        for number, p in enumerate(model.parameters()):
            p.grad = torch.full_like(p, 0.1 * number - 0.2)
        with torch.device(device):
            adam = torch.optim.AdamW(model.parameters(), fused=True)
            for base, options in (
                (sgd(model), {}),
                (adam, {"order": "bernoulli"}),
                (sgd(model), {"granularity": "tensor", "rescale": True, "align": True}),
            ):
                bcsc.BlockCyclic(base, 3, **options).step()
            return vector(model), list(bcsc.BlockCyclicSampler(8, 2, 4))

    (expected, batches), (found, others) = trained_and_sampled("cpu"), trained_and_sampled("meta")
    assert torch.equal(found, expected)
    assert others == batches


def test_its_representation_names_what_it_was_built_with() -> None:
    text = repr(bcsc.BlockCyclic(sgd(network()), 3, mask="all"))
    assert text.startswith("BlockCyclic(num_blocks=3, seed=0, mask='all', granularity='element'")
    assert "base=SGD (" in text


def test_importing_the_method_loads_nothing_but_torch_and_what_the_method_needs() -> None:
    code = (
        "import torch, sys; before = set(sys.modules); import bcsc; bcsc.BlockCyclic, bcsc.BlockCyclicSampler;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names);"
        "print(*{name.split('.')[1] for name in sys.modules if name.startswith('bcsc.')})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages, ours = (set(line.split()) for line in ran.stdout.splitlines())
    assert packages == {"bcsc"}
    assert {"optim", "errors"} < ours
    assert not ours & {"cli", "reports", "experiments", "runs", "training", "distributed", "data", "models"}


def test_units_that_are_drawn_by_themselves_are_drawn_anew_for_every_step() -> None:
    p = nn.Parameter(torch.zeros(200))
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=1.0), 2, order="bernoulli")
    moved = []
    for _ in range(6):
        p.grad, before = torch.ones(200), p.detach().clone()
        optimizer.step()
        moved.append(p.detach() != before)
    for one, other in itertools.combinations(moved, 2):  # neither alike nor one the rest of the other
        assert 0 < (one == other).sum() < 200


def test_drawing_blocks_learns_what_a_step_needs_to_know_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([nn.Parameter(torch.zeros(8))], lr=1.0), 2)
    optimizer.epoch_blocks()
    monkeypatch.setattr("bcsc.optim.block_cyclic.learn_conduct", None)  # a compiled step would break its graph there
    assert not optimizer.conduct().may_write_into_gradients


def test_an_attribute_that_is_shared_with_the_base_is_its_own_both_ways() -> None:
    class Around:
        rate = shared_with_base("rate")

        def __init__(self) -> None:
            self.base = SimpleNamespace(rate=1)

    around = Around()
    assert around.rate == 1
    around.base.rate = 2
    assert around.rate == 2
    around.rate = 3
    assert around.base.rate == 3


def test_the_scores_of_the_alignment_go_on_where_they_were_saved() -> None:
    def build() -> tuple[nn.Parameter, bcsc.BlockCyclic]:
        p = nn.Parameter(torch.ones(4, 3))
        return p, bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.5), 2, order="bernoulli", align=True, granularity="row")

    def step(p: nn.Parameter, optimizer: bcsc.BlockCyclic, number: int) -> None:
        p.grad = torch.full((4, 3), (-1.0) ** number).cumsum(1)
        optimizer.step()

    (p, optimizer), (other, resumed) = build(), build()
    for number in range(3):
        step(p, optimizer, number)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with torch.no_grad():
        other.copy_(p)
    for number in range(3, 8):
        step(p, optimizer, number)
        step(other, resumed, number)
    assert torch.equal(p, other)


def test_what_has_always_been_frozen_has_no_alignment_until_it_is_thawed() -> None:
    def build() -> tuple[list[nn.Parameter], bcsc.BlockCyclic]:
        tensors = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(4)).requires_grad_(False)]
        return tensors, bcsc.BlockCyclic(torch.optim.SGD(tensors, lr=0.5), 2, align=True)

    def step(tensors: list[nn.Parameter], optimizer: bcsc.BlockCyclic, number: int) -> None:
        for p in (p for p in tensors if p.requires_grad):
            p.grad = torch.full_like(p, number - 2.5)
        optimizer.step()

    (tensors, optimizer), (others, resumed) = build(), build()
    for number in range(2):
        step(tensors, optimizer, number)
    trained, frozen = optimizer.state_dict()["block_cyclic"]["alignment"]
    assert trained.keys() == {"average", "score"}
    assert frozen is None
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for own, other in zip(tensors, others, strict=True):
        other.data.copy_(own)
        own.requires_grad_(True)
        other.requires_grad_(True)
    for number in range(2, 6):
        step(tensors, optimizer, number)
        step(others, resumed, number)
    assert all(map(torch.equal, tensors, others))
    assert None not in optimizer.state_dict()["block_cyclic"]["alignment"]


def test_independent_units_need_not_be_as_many_as_blocks_but_these_have_a_limit() -> None:
    def build(num_blocks: int) -> bcsc.BlockCyclic:
        base = torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1)
        return bcsc.BlockCyclic(base, num_blocks, order="bernoulli")

    build(2**15).epoch_blocks()
    with pytest.raises(InvalidArgumentError, match=r"^num_blocks=32769 is more than.* Take num_blocks <= 32768.$"):
        build(2**15 + 1)


def test_alignment_is_kept_with_the_state_if_it_is_asked_for() -> None:
    for align in (True, False):
        optimizer = bcsc.BlockCyclic(sgd(network()), 2, align=align, order="bernoulli")
        assert ("alignment" in optimizer.state_dict()["block_cyclic"]) == align


def test_hooks_before_loading_are_given_the_optimizer_itself() -> None:
    optimizer, given_to = bcsc.BlockCyclic(sgd(network()), 2), []
    optimizer.register_load_state_dict_pre_hook(lambda own, _: given_to.append(own))
    optimizer.load_state_dict(optimizer.state_dict())
    assert given_to == [optimizer]


def test_a_saved_step_beyond_the_end_of_an_epoch_is_refused_and_one_before_it_is_not() -> None:
    optimizer = bcsc.BlockCyclic(sgd(network()), 2, steps_per_epoch=6)
    saved = optimizer.state_dict()
    for step in (5, 6):
        changed = {**saved, "block_cyclic": {**saved["block_cyclic"], "step": step}}
        if step == 5:
            optimizer.load_state_dict(changed)
            assert optimizer.inner_step == 5
        else:
            with pytest.raises(StateMismatchError, match="^The saved step 6 is beyond the 6 of an epoch.$"):
                optimizer.load_state_dict(changed)
