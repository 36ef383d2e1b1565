"""Learning curves averaged over seeds, against epochs, gradient evaluations or seconds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from bcsc.experiments.catalog import Axis
from bcsc.runs.record import RunRecord

Quantity = Literal["test_accuracy", "test_loss", "train_loss"]

AXES: Mapping[Axis, str] = {
    "epochs": "epochs",
    "gradient_evaluations": "gradient evaluations",
    "seconds": "seconds",
}
QUANTITIES: Mapping[Quantity, str] = {
    "test_accuracy": "test accuracy (%)",
    "test_loss": "test loss",
    "train_loss": "training loss",
}


@dataclass(frozen=True)
class Curve:
    """A quantity at the end of each epoch: the mean over the seeds, the lowest and the highest of them."""

    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Curves:
    """Everything a chart of one cell needs; it ends where the shortest of its runs ends."""

    num_seeds: int
    positions: Mapping[Axis, list[float]]
    quantities: Mapping[Quantity, Curve]
    train_loss_std: list[float]  # over the mini-batches of an epoch


def curves_of(runs: Sequence[RunRecord]) -> Curves | None:
    """The curves of the runs of one cell; None before the first epoch is done."""
    begun = [run for run in runs if run.rows]
    if not begun:
        return None
    positions: dict[Axis, list[float]] = {
        "epochs": [float(row.epoch) for row in min((run.rows for run in begun), key=len)],
        "gradient_evaluations": over_seeds([[row.gradient_evaluations for row in run.rows] for run in begun]).mean,
        "seconds": over_seeds([run.seconds_so_far() for run in begun]).mean,
    }
    return Curves(
        len(begun),
        positions,
        {name: over_seeds([[getattr(row, name) for row in run.rows] for run in begun]) for name in QUANTITIES},
        over_seeds([[row.train_loss_std for row in run.rows] for run in begun]).mean,
    )


def over_seeds(lines: Sequence[Sequence[float]]) -> Curve:
    """Mean, lowest and highest at each epoch that all have; a number that is not finite makes the epoch's mean NaN."""
    columns = list(zip(*lines, strict=False))
    mean = [fmean(column) if all(map(math.isfinite, column)) else math.nan for column in columns]
    return Curve(mean, [min(column) for column in columns], [max(column) for column in columns])
