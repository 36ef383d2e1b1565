"""Count what is dispatched to a device, and what of it would wait for one."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from bcsc import models

WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "bincount", "argsort", "sort", "equal", "index")
BASES: dict[str, Callable[[Sequence[nn.Parameter]], Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, amsgrad=True, foreach=True),
}


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is dispatched."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten":
            self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))

    def waiting(self) -> int:
        """How many of them wait for the device: they ask for a number, or for a size that depends on numbers."""
        return sum(self.counts[name] for name in WAITING)


def counted(action: Callable[[], object]) -> Operations:
    """What an action dispatches."""
    operations = Operations()
    with operations:
        action()
    return operations


def network_without_numbers(name: str) -> list[nn.Parameter]:
    """Its parameters with gradients, on the meta device, where operations cost nothing."""
    parameters = list(models.build(name, seed=0).to("meta").parameters())
    for p in parameters:
        p.grad = torch.empty_like(p)
    return parameters
