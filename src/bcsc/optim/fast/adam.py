"""What the step of Adam and AdamW in one pass needs to know of them."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer

from bcsc.choices import Mask

EXAMPLE: Mapping[str, Any] = {"lr": 0.1, "betas": (0.9, 0.97), "eps": 1e-3}


class AdamRecipe(NamedTuple):
    """What the kernel for a step of Adam is chosen by."""

    mask: Mask
    decay: Literal["none", "coupled", "decoupled"]
    maximize: bool
    fused: bool = True

    @classmethod
    def of(cls, base: Optimizer, group: Mapping[str, Any], mask: Mask, dtype: torch.dtype) -> "AdamRecipe | None":
        """That of a group, if it is torch's fused step with plain numbers, without AMSGrad.

        Only that: elsewhere torch takes square roots by MKL, which rounds them otherwise than the processor. And it
        goes the other way from gradient to mean where their shares are the other way round.
        """
        if not group["fused"] or group["amsgrad"] or group["capturable"] or type(group["betas"]) is not tuple:
            return None
        numbers = group["lr"], group["eps"], group["weight_decay"], *group["betas"]
        if any(type(number) not in (int, float) for number in numbers):
            return None
        if torch.tensor(1 - group["betas"][0], dtype=dtype, device="cpu").abs() >= 0.5:
            return None
        is_decoupled = group.get("decoupled_weight_decay", isinstance(base, AdamW))
        decay: Literal["coupled", "decoupled"] = "decoupled" if is_decoupled else "coupled"
        return cls(mask, decay if group["weight_decay"] != 0 else "none", group["maximize"])

    @property
    def state(self) -> tuple[str, ...]:
        """The names of the state with a number for every scalar."""
        return "exp_avg", "exp_avg_sq"

    def kernel(self, loops: Any, number: str, label: str) -> Any:
        """The loop."""
        return loops.adam_kernel(loops.AdamOptions(*self[:3]), number, label)

    def numbers(self, group: Mapping[str, Any]) -> tuple[float, ...]:
        """What the loop is given at every step."""
        (beta, square_beta), decay = group["betas"], group["weight_decay"]
        if self.decay == "decoupled":
            decay = 1 - group["lr"] * decay
        return decay, 1 - beta, square_beta, 1 - square_beta, group["eps"]

    def counters(self, states: Sequence[Mapping[str, Any]]) -> list[Tensor] | None:
        """How many steps each parameter has made, where torch keeps it; None if it is kept elsewhere."""
        counters = [state.get("step") for state in states]
        are_there = all(type(counter) is Tensor and counter.is_cpu and counter.dim() == 0 for counter in counters)
        return counters if are_there else None  # type: ignore[return-value]

    def by_count(self, group: Mapping[str, Any], counters: Sequence[Tensor], number: Any) -> tuple[Any, ...]:
        """For each parameter what depends on how many steps it has made, this one included."""
        counts: list[float] = torch.stack(list(counters)).add_(1).tolist()
        rates = {count: self._rates(group, count) for count in set(counts)}
        return (np.array([rates[count] for count in counts], dtype=number),)

    def _rates(self, group: Mapping[str, Any], count: float) -> tuple[float, float]:
        beta, square_beta = group["betas"]
        return -(group["lr"] / (1 - beta**count)), sqrt(1 - square_beta**count)

    def example(self, parameters: Sequence[Tensor]) -> Optimizer:
        """Torch's own with these options, after some steps."""
        kind = AdamW if self.decay == "decoupled" else Adam
        decay = 0.0 if self.decay == "none" else 0.03
        base = kind(parameters, weight_decay=decay, maximize=self.maximize, fused=True, **EXAMPLE)
        for p in parameters:
            base.state[p]["step"] = torch.tensor(5.0)
        return base
