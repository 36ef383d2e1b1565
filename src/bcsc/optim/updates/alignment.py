"""Momentum-gradient alignment: how far a unit moves, by how well its gradient agrees with the gradients before.

From Magma (Joo et al., "On Surprising Effectiveness of Masking Updates in Adaptive Optimizers", arXiv 2602.15322):
mu <- 0.9 mu + 0.1 g;  s <- 0.9 s + 0.1 sigmoid(cos(mu, g) / 2);  a unit that moves goes s times as far. Every unit has
a score s of its own, which begins at 1. The average mu is kept here, as not every base has a momentum.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from bcsc.choices import Granularity
from bcsc.errors import UnsupportedOptimizerError
from bcsc.optim.partition import is_sharded, unit_shape
from bcsc.optim.state_check import describe, is_safe, not_this_optimizers

MOMENTUM, TEMPERATURE, SMOOTHING = 0.9, 2.0, 0.9

Factors = float | Sequence[Tensor] | None  # by what moves are multiplied; tensors: for each parameter with a gradient


class Aligned(NamedTuple):
    """What is kept of a parameter: the average of its gradients, and the score of each unit."""

    average: Tensor
    score: Tensor


def alignment(average: Tensor, gradient: Tensor, units: Sequence[int]) -> Tensor:
    """For each unit the sigmoid of half the cosine between the average and the gradient; 1/2 where one is zero.

    Or so small that the square of its length is, or so large that it is infinite.
    """
    one, other = (by_unit(tensor, torch.Size(units).numel()) for tensor in (average, gradient.to(average.dtype)))
    cosine = F.cosine_similarity(one, other, dim=1, eps=torch.finfo(one.dtype).tiny ** 0.5)
    return torch.sigmoid(cosine / TEMPERATURE).view(tuple(units))


def by_unit(tensor: Tensor, num_units: int) -> Tensor:
    """The numbers of each unit in a row, a complex one as two."""
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.reshape(num_units, real.numel() // max(num_units, 1))


class Alignment:
    """The averages and scores of some parameters. They learn from every gradient, whether its unit moves or not."""

    def __init__(self, granularity: Granularity) -> None:
        self.granularity = granularity
        self._kept: dict[Tensor, Aligned] = {}

    def begin(self, parameters: Sequence[Tensor]) -> None:
        """Make room for parameters; those that have it keep what is in it."""
        new = [p for p in parameters if p not in self._kept]
        refuse_sharded(new)
        self._kept.update({p: self._start(p) for p in new})

    def learn(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Take in the gradients; gives the scores of each parameter that has one, to be multiplied with its move."""
        return [self._learn(p, p.grad) for p in parameters if p.grad is not None]

    def _learn(self, p: Tensor, gradient: Tensor) -> Tensor:
        kept = self._kept[p]
        kept.average.lerp_(gradient.to(kept.average.dtype), 1 - MOMENTUM)
        kept.score.lerp_(alignment(kept.average, gradient, kept.score.shape), 1 - SMOOTHING)
        return kept.score

    def _start(self, p: Tensor) -> Aligned:
        dtype = torch.promote_types(p.dtype, torch.float32)
        average = torch.zeros_like(p, dtype=dtype, requires_grad=False)
        return Aligned(
            average, torch.ones(unit_shape(p.shape, self.granularity), dtype=dtype.to_real(), device=p.device)
        )

    def state_of(self, parameters: Sequence[Tensor]) -> list[dict[str, Tensor] | None]:
        """What is kept of each parameter or will be at the next step; nothing of one that has always been frozen."""
        begun = {p: self._start(p) for p in parameters if p.requires_grad and p not in self._kept}
        kept = {**self._kept, **begun}
        return [kept[p]._asdict() if p in kept else None for p in parameters]

    def checked(self, saved: Any, parameters: Sequence[Tensor]) -> "Alignment":
        """One that goes on with what was saved, if it fits the parameters."""
        if not isinstance(saved, list) or len(saved) != len(parameters):
            not_this_optimizers(f"it has no alignment of {len(parameters)} parameters")
        restored = Alignment(self.granularity)
        for number, (p, entry) in enumerate(zip(parameters, saved, strict=True)):
            if entry is not None:
                restored._kept[p] = self._checked_entry(p, entry, f"the alignment of parameter {number}")
        return restored

    def _checked_entry(self, p: Tensor, entry: Any, where: str) -> Aligned:
        made = self._start(p)
        for name, own in made._asdict().items():
            value = entry.get(name) if isinstance(entry, Mapping) else None
            if not (
                isinstance(value, Tensor) and is_safe(value) and (value.shape, value.dtype) == (own.shape, own.dtype)
            ):
                not_this_optimizers(f"{name} in {where} is {describe(value)}, should be {describe(own)}")
            own.copy_(value)
        return made


def refuse_sharded(parameters: Sequence[Tensor]) -> None:
    """Refuse parameters of which each process has a part."""
    if any(map(is_sharded, parameters)):
        raise UnsupportedOptimizerError(
            "align=True needs the whole gradient of every unit in each process, and these parameters are DTensors, in "
            'shards. Take order="bernoulli" with rescale=True (SkipUpdate), or replicate the parameters.'
        )
