"""RunRecord: what one run folder says."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bcsc.choices import Period
from bcsc.runs.spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class EpochRow:
    """What one epoch measured; accuracies are in percent."""

    epoch: int
    learning_rate: float
    train_loss: float
    train_loss_std: float
    test_loss: float
    test_accuracy: float
    gradient_evaluations: int
    seconds: float
    images_per_second: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How far a run came."""

    state: str
    epochs: int
    epochs_done: int
    test_accuracy: Mapping[str, float] | None
    gradient_evaluations: int
    seconds: float
    outliers: Mapping[str, Any] | None
    message: str | None


@dataclass(frozen=True)
class RunRecord:
    """One run: what was asked for, what each epoch measured, how it ended, and where it was made."""

    folder: Path
    spec: RunSpec
    rows: tuple[EpochRow, ...]
    summary: Summary
    origin: Mapping[str, Any]

    @property
    def is_finished(self) -> bool:
        return self.summary.state == "finished"

    def accuracy(self, period: Period) -> float:
        """The test accuracy over a period of a finished run, in percent."""
        if not self.is_finished or self.summary.test_accuracy is None:
            raise ValueError(f"{self.folder} has no accuracies: it is {self.summary.state}.")
        return self.summary.test_accuracy[period]

    def seconds_so_far(self) -> list[float]:
        """The training time at the end of each epoch."""
        return list(accumulate(row.seconds for row in self.rows))
