"""Learning curves averaged over seeds, against epochs, gradient evaluations or seconds, and axes that suit them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median_low, quantiles
from typing import Literal

from bcsc.experiments.experiment import Axis, Cell
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


# Told apart by eyes of all kinds, on light and on dark ground; an arm has the same in every chart of its study.
ARM_COLOURS = ("#3987d8", "#e07b39", "#2aa17c", "#c2589f", "#b99a1f", "#7d74d9", "#d1495b", "#4aa3b5")
REACH = 3.0  # a loss may lie this many times above where it usually lies before it is cut off
DEPTH = 1e4  # and this many times below the highest
STEPS = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))  # where a log axis may be labelled in each decade


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
    train_loss_spread: Curve  # one standard deviation over the mini-batches of an epoch, cut at zero


def curves_of(runs: Sequence[RunRecord]) -> Curves | None:
    """The curves of the finished runs of one cell, or of those begun while none is; None before the first epoch."""
    begun = [run for run in runs if run.rows and run.is_finished] or [run for run in runs if run.rows]
    if not begun:
        return None
    positions: dict[Axis, list[float]] = {
        "epochs": [float(row.epoch) for row in min((run.rows for run in begun), key=len)],
        "gradient_evaluations": over_seeds([[row.gradient_evaluations for row in run.rows] for run in begun]).mean,
        "seconds": over_seeds([run.seconds_so_far() for run in begun]).mean,
    }
    quantities = {name: over_seeds([[getattr(row, name) for row in run.rows] for run in begun]) for name in QUANTITIES}
    deviation = over_seeds([[row.train_loss_std for row in run.rows] for run in begun]).mean
    return Curves(len(begun), positions, quantities, spread_around(quantities["train_loss"].mean, deviation))


def spread_around(mean: Sequence[float], deviation: Sequence[float]) -> Curve:
    """One deviation up and down, but not below zero, where no loss is."""
    pairs = list(zip(mean, deviation, strict=True))
    return Curve(list(mean), [max(x - std, 0.0) for x, std in pairs], [x + std for x, std in pairs])


def over_seeds(lines: Sequence[Sequence[float]]) -> Curve:
    """Mean, lowest and highest at each epoch that all have; a number that is not finite makes the epoch's mean NaN."""
    columns = list(zip(*lines, strict=False))
    mean = [fmean(column) if all(map(math.isfinite, column)) else math.nan for column in columns]
    return Curve(mean, [min(column) for column in columns], [max(column) for column in columns])


def by_place(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    """The cells of each network and condition, which are compared with each other."""
    places: dict[str, list[Cell]] = {}
    for cell in cells:
        places.setdefault(cell.place, []).append(cell)
    return places


def finite(values: Iterable[float]) -> list[float]:
    """The values that are numbers."""
    return [value for value in values if math.isfinite(value)]


def loss_limits(lines: Iterable[Sequence[float]]) -> tuple[float, float] | None:
    """The ends of an axis that holds every line but what explodes; None where there is nothing to show.

    A line that spikes counts up to where it usually lies, and no line counts for more than ``REACH`` times what the
    middle one does. So neither a bad first epoch nor a method that diverges squeezes all others into a flat line.
    """
    found = [positive for line in lines if (positive := [value for value in finite(line) if value > 0])]
    if not found:
        return None
    tops = [usual_top(line) for line in found]
    high = min(max(tops), REACH * median_low(tops))
    lowest = min(map(min, found))
    return max(lowest, high / DEPTH), high


def accuracy_limits(lines: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """The same for accuracies in percent, by the errors that remain: where all err little, one that guesses is cut."""
    known = [value for line in lines for value in finite(line)]
    if not known:
        return None
    errors = loss_limits([[100 - value for value in line] for line in lines])
    return min(known) if errors is None else max(min(known), 100 - errors[1]), max(known)


def usual_top(line: Sequence[float]) -> float:
    """The highest value of a line that is no spike: Tukey's fence, on a log axis and ``REACH`` times wider."""
    if len(line) == 1:
        return line[0]
    low, _, high = quantiles([math.log(value) for value in line], n=4, method="inclusive")
    fence = high + 1.5 * (high - low) + math.log(REACH)
    return max(line) if math.log(max(line)) <= fence else math.exp(fence)


def log_ticks(low: float, high: float) -> list[float]:
    """At least three round numbers between two ends, where there are three, and few more."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = range(first, last + 1, max(1, (last - first) // 5))
    for steps in STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) >= 3:
            break
    return ticks


def short(number: float) -> str:
    """A number for the narrow place beside a tick: 1500000 is 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
