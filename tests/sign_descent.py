"""An optimizer that is not in torch.optim, as if it came from another package."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class SignDescent(Optimizer):
    """Moves every parameter by the rate, against the sign of its gradient."""

    def __init__(
        self, params: Iterable[Tensor], lr: float = 1e-3, weight_decay: float = 0.0, flip: bool = False
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "flip": flip})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.sub_(parameter.grad.sign(), alpha=-group["lr"] if group["flip"] else group["lr"])
        return loss
