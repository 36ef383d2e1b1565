"""Which work is whose: a pure function of the rank, the number of ranks and the way of dividing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Division:
    """What of an epoch's mini-batches one rank works on.

    By ``"samples"`` every rank takes its part of every mini-batch. By ``"steps"`` it takes whole mini-batches, one of
    ``size`` consecutive inner steps.
    """

    rank: int = 0
    size: int = 1
    by: Literal["samples", "steps"] = "samples"

    @property
    def steps_at_once(self) -> int:
        """How many inner steps all ranks together make at a time."""
        return self.size if self.by == "steps" else 1

    def batches(self, start: int, stop: int) -> range:
        """The numbers of the mini-batches from ``start`` on that this rank has something of."""
        return range(start + self.rank % self.steps_at_once, stop, self.steps_at_once)

    def part(self, num_samples: int) -> slice:
        """Where in a mini-batch this rank's samples are. If there is none for it, it takes the first, and counts none.

        A rank without a sample would not know which parameters the others have gradients for.
        """
        return self._every_nth() if self.num_counted(num_samples) else slice(0, 1)

    def num_counted(self, num_samples: int) -> int:
        """How many samples of a mini-batch count on this rank; over all ranks that is each once."""
        return len(range(num_samples)[self._every_nth()])

    def merged(self, losses: Sequence[Tensor]) -> Tensor:
        """The losses of the mini-batches in order, from what each rank has measured."""
        stacked = torch.stack(list(losses), dim=1)
        return stacked.flatten() if self.by == "steps" else stacked.sum(dim=1)

    def _every_nth(self) -> slice:
        num_parts = self.size // self.steps_at_once
        return slice(self.rank % num_parts, None, num_parts)


WHOLE = Division()
