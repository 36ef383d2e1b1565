"""Which bases treat every scalar by itself is seen by trying them, not by their names."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from bcsc.distributed.by_element import treats_scalars_apart
from tests.odd_optimizers import Counting, Hoarding
from tests.sign_descent import SignDescent

APART = ("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(1))]


class Looking(SignDescent):
    """Treats scalars apart but for what ``look`` makes of the first tensor and its gradient."""

    def __init__(self, params: Any, look: Callable[..., float]) -> None:
        super().__init__(params, lr=1e-6)
        self.look = look

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        p = group["params"][0]
        group["lr"] = 1e-6 * (1 + self.look(p.detach().double(), p.grad.double()))
        super().step(closure)
        group["lr"] = 1e-6


@pytest.mark.parametrize("name", APART)
def test_most_of_torch_does(name: str) -> None:
    own = parameters()
    before = [p.detach().clone() for p in own]
    torch.manual_seed(3)
    random_state = torch.get_rng_state()
    base: Optimizer = getattr(torch.optim, name)(own)
    state = str(base.state_dict())
    assert treats_scalars_apart(base)
    assert str(base.state_dict()) == state
    assert all(map(torch.equal, own, before))
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize("fused", [False, True])
def test_rounding_makes_no_difference(fused: bool) -> None:
    assert treats_scalars_apart(torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, fused=fused))
    assert treats_scalars_apart(torch.optim.AdamW(parameters(), fused=fused))


def test_others_are_tried_too() -> None:
    assert treats_scalars_apart(SignDescent(parameters()))
    assert treats_scalars_apart(Counting(parameters()))


@pytest.mark.parametrize(
    "base",
    [
        lambda: torch.optim.Adafactor(parameters()),
        lambda: torch.optim.Muon([nn.Parameter(torch.randn(4, 3))]),
        lambda: Hoarding(parameters()),
        lambda: Looking(parameters(), lambda _, gradient: gradient.norm().item()),
        lambda: Looking(parameters(), lambda p, gradient: float((p * gradient).sum().abs() < 1e-3)),
        lambda: Looking(parameters(), lambda p, _: float(p.dim())),
    ],
)
def test_what_depends_on_the_rest_of_a_tensor_or_keeps_other_things_does_not(base: Callable[[], Optimizer]) -> None:
    assert not treats_scalars_apart(base())


class Estimating(SignDescent):
    """Moves apart, but estimates something over all tensors among its options."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        group["estimate"] = group.get("estimate", 0.0) + sum(p.grad.sum().item() for p in group["params"])
        super().step(closure)


def test_an_estimate_over_all_scalars_is_noticed() -> None:
    assert not treats_scalars_apart(Estimating(parameters()))
