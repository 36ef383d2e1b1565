"""Optimizers with habits that a run must cope with or refuse, as if they came from another package."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.sign_descent import SignDescent


class Counting(SignDescent):
    """Counts its steps among the options of its group, and goes less far with each."""

    def __init__(self, params: Iterable[Tensor], lr: float = 0.01) -> None:
        super().__init__(params, lr)
        self.param_groups[0]["count"] = 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        (group,) = self.param_groups
        rate, group["count"] = group["lr"], group["count"] + 1
        group["lr"] = rate / group["count"]
        loss = super().step(closure)
        group["lr"] = rate
        return loss


class Hoarding(SignDescent):
    """Keeps what torch reads from no file without running code."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["seen"] = deque([1])
        return super().step(closure)


class OnlyMatrices(SignDescent):
    """Refuses a vector, but only when it steps."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        if any(parameter.dim() != 2 for parameter in self.param_groups[0]["params"]):
            raise ValueError("matrices only")
        return super().step(closure)


class Rateless(Optimizer):
    """Has no learning rate."""

    def __init__(self, params: Iterable[Tensor]) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(parameter.grad)
