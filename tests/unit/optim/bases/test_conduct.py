"""What is seen of a base is what it does."""

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import bcsc
from bcsc.optim.bases.conduct import Conduct, observed_conduct, per_element_state, settings_of


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((4, 4), (5,))]


def sgd(**options: object) -> Optimizer:
    return torch.optim.SGD(parameters(), lr=0.1, **options)


class Averaging(Optimizer):
    """Keeps a running average of where the parameters were, beginning where they began, and a square matrix."""

    def __init__(self, tensors: list[Tensor], weight_decay: float = 0.1) -> None:
        super().__init__(tensors, {"lr": 0.1, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state["average"] = p.clone()
                    state["square"] = torch.zeros(len(p), len(p)) if p.dim() == 2 else torch.zeros(())
                    state["momentum"] = torch.zeros_like(p)
                state["square"] += 1
                state["momentum"].mul_(0.9).add_(p.grad + group["weight_decay"] * p)
                state["average"].add_(state["momentum"], alpha=-0.5 * group["lr"])
                p.add_(state["momentum"], alpha=-group["lr"])


@pytest.mark.parametrize(
    ("base", "writes"),
    [
        (sgd(nesterov=True, momentum=0.9, foreach=True), True),
        (sgd(nesterov=True, momentum=0.9), False),
        (sgd(momentum=0.9, foreach=True), False),
        (sgd(maximize=True, foreach=True), False),
        (torch.optim.AdamW(parameters(), fused=True), False),
        (Averaging(parameters()), True),  # nobody knows it
    ],
)
def test_a_base_that_writes_into_gradients_is_seen_to_and_an_unknown_one_may(base: Optimizer, writes: bool) -> None:
    assert observed_conduct(base).may_write_into_gradients == writes


def test_only_such_a_base_is_given_copies() -> None:
    given: list[Tensor] = []
    for options in ({"foreach": True}, {"foreach": False}):
        base = sgd(nesterov=True, momentum=0.9, **options)
        optimizer = bcsc.BlockCyclic(base, 2)
        base.register_step_pre_hook(lambda base, *_: given.append(base.param_groups[0]["params"][0].grad))
        p = base.param_groups[0]["params"][0]
        p.grad = torch.ones_like(p)
        optimizer.step()
        given.append(p.grad)
    assert given[0] is not given[1]
    assert given[2] is given[3]


def test_a_setting_changed_on_the_way_is_noticed() -> None:
    base = sgd(momentum=0.9, foreach=True)
    optimizer = bcsc.BlockCyclic(base, 2)
    p = base.param_groups[0]["params"][0]
    for step in range(4):
        base.param_groups[0]["nesterov"] = step > 1
        p.grad = torch.ones_like(p)
        optimizer.step()
        assert (p.grad == 1).all()


def test_settings_are_told_apart_by_choices_and_zeros_and_not_by_every_rate() -> None:
    base = sgd(momentum=0.9)
    before = settings_of(base)
    base.param_groups[0]["lr"] = 0.01
    assert settings_of(base) == before
    for name, value in (("momentum", 0.0), ("nesterov", True), ("foreach", True), ("lr", torch.tensor(0.1))):
        other = sgd(momentum=0.9)
        other.param_groups[0][name] = value
        assert settings_of(other) != before


def test_state_that_starts_as_the_parameter_and_state_that_is_not_by_element_are_found() -> None:
    assert observed_conduct(Averaging(parameters())) == Conduct(
        may_write_into_gradients=True,
        starts_as_parameter=frozenset({"average"}),
        not_by_element=frozenset({("square", 2), ("square", 1)}),
        state_names=frozenset({"average", "momentum", "square"}),
    )
    assert observed_conduct(torch.optim.Adagrad(parameters())).starts_as_parameter == frozenset()


def test_under_all_such_state_starts_outside_the_block_from_the_parameter() -> None:
    tensors = parameters()
    before = [p.detach().clone() for p in tensors]
    optimizer = bcsc.BlockCyclic(Averaging(tensors), 3, mask="all")
    outside = [labels != optimizer.block for labels in optimizer.epoch_blocks().labels]
    for p in tensors:
        p.grad = torch.ones_like(p)
    optimizer.step()
    for p, old, out in zip(tensors, before, outside, strict=True):
        state = optimizer.state[p]
        assert torch.equal(state["average"][out], old[out])
        assert (state["momentum"][out] == 0).all()
        assert (state["square"] == 1).all()  # belongs to the whole tensor, though it has its shape
        assert (state["average"][~out] != old[~out]).all()


schedulefree_bases = ["SGDScheduleFree", "AdamWScheduleFree", "RAdamScheduleFree"]


@pytest.mark.parametrize("name", schedulefree_bases)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("foreach", [True, False])
def test_schedule_free_bases_start_from_the_parameters_and_count_their_own_steps_only(name, decay, foreach) -> None:
    schedulefree = pytest.importorskip("schedulefree")
    tensors = parameters()
    base = getattr(schedulefree, name)(tensors, lr=0.1, weight_decay=decay, foreach=foreach)
    optimizer = bcsc.BlockCyclic(base, 3, mask="all", steps_per_epoch=3)
    base.train()
    for step in range(1, 8):
        inside = [labels == optimizer.block for labels in optimizer.epoch_blocks().labels]
        before = [(p.detach().clone(), base.state[p].get("z", p.detach()).clone()) for p in tensors]
        for p in tensors:
            p.grad = torch.full_like(p, float(step))
        optimizer.step()
        assert base.param_groups[0]["k"] == step
        for p, (old, z), here in zip(tensors, before, inside, strict=True):
            assert torch.equal(p.detach()[~here], old[~here])
            assert torch.equal(base.state[p]["z"][~here], z[~here])
        assert all((p.grad == step).all() for p in tensors)
    assert all((base.state[p]["z"] != start).any() for p, start in zip(tensors, parameters(), strict=True))


def test_state_is_by_element_if_it_has_the_parameters_shape_and_is_not_known_otherwise() -> None:
    base = torch.optim.Adam(parameters())
    matrix, vector = base.param_groups[0]["params"]
    for p in (matrix, vector):
        p.grad = torch.ones_like(p)
    base.step()
    assert per_element_state(base, matrix).keys() == {"exp_avg", "exp_avg_sq"}
    but_for = frozenset({("exp_avg", 2), ("exp_avg_sq", 1)})
    assert per_element_state(base, matrix, but_for).keys() == {"exp_avg_sq"}
    assert per_element_state(base, vector, but_for).keys() == {"exp_avg"}


def test_state_that_starts_as_the_parameter_in_fewer_digits_is_found() -> None:
    class Copying(torch.optim.SGD):
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                self.state[p].setdefault("start", p.detach().bfloat16())
            super().step()

    assert observed_conduct(Copying(parameters(), lr=0.1)).starts_as_parameter == {"start"}


def test_a_base_that_is_spread_over_processes_is_not_tried_but_expected_to_do_the_worst() -> None:
    steps = []

    class Spread(torch.optim.SGD):
        def step(self, closure=None):
            steps.append("a message that nobody waits for")

    observed_conduct(Spread(parameters(), lr=0.1))
    assert steps
    steps.clear()
    Spread.__module__ = "torch.distributed.optim.some_optimizer"
    assert observed_conduct(Spread(parameters(), lr=0.1)) == Conduct()
    assert not steps


def test_state_that_starts_as_a_parameter_of_two_scalars_is_found() -> None:
    conduct = observed_conduct(Averaging([nn.Parameter(torch.tensor([0.3, -2.0]))]))
    assert conduct.starts_as_parameter == frozenset({"average"})
