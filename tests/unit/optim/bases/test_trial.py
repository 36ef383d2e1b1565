"""A trial tells what a base does, and leaves no trace."""

import copy
import threading
from collections import defaultdict, deque
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.optim.optimizer import register_optimizer_step_post_hook

import bcsc
from bcsc.optim.bases.trial import Trials, seed_generators, twin_of, without_trace


class Counting(Optimizer):
    """Counts its steps wherever one can, beside noise from the global generator."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.1, "count": 0, "total": torch.zeros(())})
        self.count, self.counts = 0, [0]
        self.state["everywhere"] = {"count": 0}

    def step(self, closure=None):
        self.count += 1
        self.counts.append(self.count)
        self.state["everywhere"]["count"] += 1
        for group in self.param_groups:
            group["count"] += 1
            group["total"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad + torch.randn(()), alpha=-group["lr"])


class Wrapper(Optimizer):
    """Steps another optimizer, whose groups and state it shows as its own."""

    def __init__(self, inside: Optimizer) -> None:
        self.inside, self.known, self.defaults = inside, list(inside.param_groups[0]["params"]), {}
        super().__setstate__({})

    param_groups = property(lambda self: self.inside.param_groups)
    state = property(lambda self: self.inside.state)

    def step(self, closure=None):
        self.inside.step()
        with torch.no_grad():
            for p in self.known:
                p.mul_(0.5)


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 6), (5,), (), (2, 1, 3))]


@pytest.mark.parametrize("make", [Counting, lambda p: Wrapper(torch.optim.SGD(p, lr=0.1, momentum=0.9))])
def test_neither_the_base_nor_the_parameters_nor_the_generators_notice(make) -> None:
    tensors = parameters()
    base = make(tensors)
    for p in tensors:
        p.grad = torch.ones_like(p)
    before = copy.deepcopy([p.detach() for p in tensors])
    options = [{name: copy.copy(value) for name, value in group.items()} for group in base.param_groups]
    attributes, state, random = copy.deepcopy(getattr(base, "counts", None)), dict(base.state), torch.get_rng_state()
    with without_trace(base):
        trial = Trials(base).new()
        moved = [p.detach().clone() for p in trial.stand_ins]
        trial.step(scale=1.0)
        assert not any(map(torch.equal, moved, trial.stand_ins))
    assert all(map(torch.equal, tensors, before))
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in tensors)
    assert torch.equal(torch.get_rng_state(), random)
    assert [{**group, "params": None} for group in base.param_groups] == [{**old, "params": None} for old in options]
    assert (getattr(base, "counts", None), dict(base.state)) == (attributes, state)


class KeepingThings(Optimizer):
    """Keeps numbers in things that are no plain containers, and has a generator and a lock of its own."""

    def __init__(self, parameters: list[Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.sums: defaultdict[int, float] = defaultdict(float)
        self.last: deque[Tensor] = deque(maxlen=2)
        self.noise, self.lock = torch.Generator().manual_seed(0), threading.Lock()

    def step(self, closure=None):
        with self.lock, torch.no_grad():
            for number, p in enumerate(self.param_groups[0]["params"]):
                self.sums[number] += float(p.grad.sum())
                self.last.append(p.grad)
                p.sub_(p.grad * torch.rand((), generator=self.noise))


def test_a_base_does_not_notice_whatever_it_keeps_its_numbers_in() -> None:
    base = KeepingThings(parameters())
    bcsc.BlockCyclic(base, 2)
    assert (dict(base.sums), list(base.last)) == ({}, [])
    assert torch.equal(base.noise.get_state(), torch.Generator().manual_seed(0).get_state())


def test_what_is_shared_inside_a_base_is_shared_inside_its_twin() -> None:
    base = KeepingThings(parameters())
    shared: list[float] = [1.0]
    base.one, base.other, base.both = shared, {"log": shared}, (shared, shared)
    twin = twin_of(base, {})
    assert twin.one is not shared
    assert twin.one is twin.other["log"] is twin.both[0] is twin.both[1]


def test_a_model_that_a_base_knows_is_not_copied() -> None:
    base = torch.optim.SGD(parameters(), lr=0.1)
    base.model, base.on_load = nn.Linear(2, 2), parameters().copy
    twin = twin_of(base, {})
    assert twin.model is base.model
    assert twin.on_load is base.on_load


def test_the_generators_of_devices_without_parameters_are_not_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ``torch.manual_seed`` does, of all there are."""
    base = torch.optim.AdamW(parameters())
    monkeypatch.setattr(torch, "manual_seed", None)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", None)
    optimizer = bcsc.BlockCyclic(base, 2)
    optimizer.epoch_blocks()
    base.param_groups[0]["lr"] = 0.0
    assert optimizer.conduct().state_names == {"step", "exp_avg", "exp_avg_sq"}


def test_the_generators_of_the_parameters_accelerators_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = []

    def generator_of(device: torch.device) -> SimpleNamespace:
        return SimpleNamespace(manual_seed=lambda seed: SimpleNamespace(get_state=lambda: (device, seed)))

    module = SimpleNamespace(set_rng_state=lambda state, device: seeded.append((state, device)))
    accelerator = torch.device("cuda", 1)
    with torch.random.fork_rng([]):
        monkeypatch.setattr(torch, "get_device_module", {"cuda": module}.get)
        monkeypatch.setattr(torch, "Generator", generator_of)
        seed_generators([accelerator])
    assert seeded == [((accelerator, 0), accelerator)]


def test_hooks_and_schedulers_are_not_told() -> None:
    base = torch.optim.SGD(parameters(), lr=0.1)
    calls = []
    base.register_step_pre_hook(lambda *_: calls.append("before"))
    StepLR(base, step_size=1)  # counts the calls of base.step
    on_all = register_optimizer_step_post_hook(lambda *_: calls.append("after any"))
    try:
        trials = Trials(base)
        trials.new().step(scale=1.0)
    finally:
        on_all.remove()
    assert trials.error is None
    assert calls == []
    assert not hasattr(base, "_opt_called")


def test_trials_begin_alike() -> None:
    base = Counting(parameters())
    trials = Trials(base)
    first, second = trials.new(), trials.new()
    torch.manual_seed(0)
    first.step(scale=1.0)
    torch.manual_seed(0)
    second.step(scale=1.0)
    assert all(map(torch.equal, first.stand_ins, second.stand_ins))


def test_stand_ins_have_no_two_sides_alike_and_as_many_as_their_parameters() -> None:
    trial = Trials(torch.optim.SGD(parameters(), lr=0.1)).new()
    assert [tuple(p.shape) for p in trial.stand_ins] == [(2, 3), (2,), (), (2, 1, 4)]


class BuiltWithState(Optimizer):
    """Does not step tensors that it has not met when it was built."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__(tensors, {"lr": 0.1})
        for p in tensors:
            self.state[p] = {"sum": torch.arange(p.numel()).view_as(p).float(), "step": torch.zeros(())}

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p -= p.grad * self.state[p]["sum"]


def test_a_base_that_makes_its_state_when_it_is_built_keeps_it() -> None:
    trials = Trials(BuiltWithState(parameters()))
    assert trials.error is None
    trial = trials.new()
    corner, row, *_ = (trial.twin.state[p]["sum"] for p in trial.stand_ins)
    assert corner.tolist() == [[0, 1, 2], [6, 7, 8]]
    assert row.tolist() == [0, 1]


def test_a_snapshot_brings_everything_back() -> None:
    trial = Trials(torch.optim.AdamW(parameters())).new()
    trial.step(scale=1.0)
    snapshot = trial.snapshot()
    trial.step(scale=2.0)
    trial.restore(snapshot)
    again = Trials(torch.optim.AdamW(parameters())).new()
    again.step(scale=1.0)
    for mine, other in zip(trial.stand_ins, again.stand_ins, strict=True):
        assert torch.equal(mine, other)
        torch.testing.assert_close(trial.twin.state[mine], again.twin.state[other], rtol=0, atol=0)


def test_what_is_shared_in_an_optimizer_stays_shared_in_its_twin() -> None:
    tensors = parameters()
    base = Wrapper(torch.optim.SGD(tensors, lr=0.1))
    stand_ins = {id(p): p.detach().clone() for p in tensors}
    twin = twin_of(base, stand_ins)
    assert twin.inside is not base.inside
    assert twin.param_groups is twin.inside.param_groups
    assert [id(p) for p in twin.known] == [id(stand_ins[id(p)]) for p in tensors]


def test_parameters_without_numbers_are_tried_with_some() -> None:
    base = torch.optim.Adam([nn.Parameter(torch.ones(4, 3, device="meta"))])
    trial = Trials(base).new()
    trial.step(scale=1.0)
    assert [p.device.type for p in trial.stand_ins] == ["cpu"]
    assert all(p.isfinite().all() for p in trial.stand_ins)
