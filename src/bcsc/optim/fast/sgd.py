"""What the step of SGD in one pass needs to know of SGD."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from bcsc.choices import Mask

EXAMPLE = {"lr": 0.1, "weight_decay": 0.01, "momentum": 0.9, "dampening": 0.3}


class SgdRecipe(NamedTuple):
    """What the kernel for a step of SGD is chosen by."""

    mask: Mask
    decays: bool
    has_momentum: bool
    nesterov: bool
    maximize: bool
    fused: bool

    @classmethod
    def of(cls, base: Optimizer, group: Mapping[str, Any], mask: Mask, dtype: torch.dtype) -> "SgdRecipe | None":
        """That of a group, if its numbers are plain ones."""
        if any(type(group[name]) not in (int, float) for name in EXAMPLE):
            return None
        decays, has_momentum = group["weight_decay"] != 0, group["momentum"] != 0
        return cls(mask, decays, has_momentum, group["nesterov"], group["maximize"], bool(group["fused"]))

    @property
    def state(self) -> tuple[str, ...]:
        """The names of the state with a number for every scalar."""
        return ("momentum_buffer",) if self.has_momentum else ()

    def kernel(self, loops: Any, number: str, label: str) -> Any:
        """The loop."""
        return loops.sgd_kernel(loops.SgdOptions(*self[:5]), number, label)

    def numbers(self, group: Mapping[str, Any]) -> tuple[float, ...]:
        """What the loop is given at every step."""
        return -group["lr"], group["weight_decay"], group["momentum"], 1 - group["dampening"]

    def counters(self, states: Sequence[Mapping[str, Any]]) -> list[Tensor] | None:
        """SGD counts no steps."""
        return []

    def by_count(self, group: Mapping[str, Any], counters: Sequence[Tensor], number: Any) -> tuple[Any, ...]:
        """So nothing depends on how many there were."""
        return ()

    def example(self, parameters: Sequence[Tensor]) -> Optimizer:
        """Torch's own SGD with these options. Nesterov's momentum takes no dampening."""
        used = {"weight_decay": self.decays, "momentum": self.has_momentum}
        used["dampening"] = self.has_momentum and not self.nesterov
        numbers: dict[str, Any] = {name: value * used.get(name, True) for name, value in EXAMPLE.items()}
        return SGD(parameters, nesterov=self.nesterov, maximize=self.maximize, fused=self.fused, **numbers)
