"""A case of a claim: one number per seed, which lies on the claimed side of a bound, or on the other, or is open."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from bcsc.choices import Measure, Period
from bcsc.experiments.experiment import NUM_CLASSES, PERIODS, Cell
from bcsc.experiments.planning.sayings import MEASURES, Saying, Side
from bcsc.experiments.study import Study

CaseState = Literal["holds", "does not hold", "not decided"]

# Two-sided 95 % quantiles of Student's t for 1, 2, 3... degrees of freedom; the last is a safe bound for more.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
GUESSING = 0.02  # an arm that has come less than this share of the way from guessing to perfect has learned nothing


@dataclass(frozen=True)
class Case:
    """One number per seed, in units of the measure, and the side of a bound on which the claim says it lies."""

    label: str
    values: tuple[float, ...]
    caveat: str
    side: Side = "above"
    bound: float = 0.0
    undecidable: tuple[str, ...] = ()  # in words: arms that guess or diverged at a seed, averages of other moments
    cells: tuple[Cell, ...] = ()  # whose runs the numbers are from
    folders: tuple[Path, ...] = ()  # of those runs
    measure: Measure = "test_accuracy"

    @property
    def unit(self) -> str:
        """What the numbers are: percentage points, or a loss."""
        return "points" if self.measure == "test_accuracy" else MEASURES[self.measure]

    @property
    def margin(self) -> float:
        """Half the width of the confidence interval."""
        degrees = len(self.values) - 1
        if degrees < 1:
            return math.inf
        return T_95[min(degrees, len(T_95)) - 1] * stdev(self.values) / math.sqrt(len(self.values))

    @property
    def interval(self) -> str:
        """What the interval is; empty where there is none."""
        return "" if math.isinf(self.margin) else f"95 % t interval over {len(self.values)} paired seeds"

    @property
    def state(self) -> CaseState:
        if self.undecidable or self.margin in (0, math.inf):  # seeds that agree to the last digit tell of no spread
            return "not decided"
        excess = fmean(self.values) - self.bound
        if self.side == "below":
            excess = -excess
        return "holds" if excess > self.margin else "does not hold" if excess < -self.margin else "not decided"

    @property
    def numbers(self) -> str:
        """The mean, its interval and the number of seeds, as text, and who guesses or diverged."""
        if not self.values:
            none = "no seed that all have finished" if len(self.cells) > 1 else "no finished runs"
            return "; ".join([none, *self.undecidable])
        digits = 2 if self.measure == "test_accuracy" else 4
        interval = "" if math.isinf(self.margin) else f" ± {self.margin:.{digits}f}"
        seeds = len(self.values)
        gain = f"{fmean(self.values):+.{digits}f}{interval} ({seeds} seed{'s' if seeds > 1 else ''})"
        return "; ".join([gain, *self.undecidable])


def case_of(study: Study, saying: Saying, label: str, weights: Mapping[Cell, float], period: Period) -> Case:
    """The case that a weighted sum of measurements lies on the side of the bound that is said."""
    found = [words for cell in weights for words in (at_chance(study, cell, period), diverged(study, cell))]
    found.append(of_other_moments(study, weights, period))
    values = paired(study, saying.measure, weights, period)
    if not all(map(math.isfinite, values)):
        values, found = (), [*found, f"the {MEASURES[saying.measure]} is not a number at every seed"]
    measured = [] if saying.measure == "test_accuracy" else [MEASURES[saying.measure]]
    return Case(
        ", ".join([label, *measured, PERIODS[period].lower()]),
        values,
        study.caveat,
        saying.side,
        saying.bound,
        undecidable=tuple(dict.fromkeys(filter(None, found))),
        cells=tuple(weights),
        folders=tuple(run.folder for cell in weights for run in study.runs.get(cell, ())),
        measure=saying.measure,
    )


def at_chance(study: Study, cell: Cell, period: Period) -> str:
    """In words, that a cell is no better than guessing; empty if it is, or if its number of classes is not known."""
    runs = study.finished.get(cell, ())
    num_classes = NUM_CLASSES.get(runs[0].spec.data) if runs else None
    if num_classes is None:
        return ""
    accuracy, chance = fmean(run.accuracy(period) for run in runs), 100 / num_classes
    if accuracy - chance >= GUESSING * (100 - chance):
        return ""
    return f"{cell.arm} is at chance level: {accuracy:.2f} % with {num_classes} classes"


def diverged(study: Study, cell: Cell) -> str:
    """In words, at how many seeds a cell diverged: the seeds that are left would flatter it; empty if at none."""
    runs = study.runs.get(cell, ())
    number = sum(run.summary.state == "diverged" for run in runs)
    where = f" with {cell.condition}" if cell.condition else ""
    return f"{cell.arm} diverged at {number} of {len(runs)} seeds{where}" if number else ""


def of_other_moments(study: Study, cells: Iterable[Cell], period: Period) -> str:
    """In words, that averages over a period are not of the same moments, as the cells have other numbers of epochs."""
    numbers = sorted({run.spec.epochs for cell in cells for run in study.finished.get(cell, ())})
    if period == "final" or len(numbers) < 2:
        return ""
    return f"averages over {' and '.join(map(str, numbers))} epochs are of other moments"


def paired(study: Study, measure: Measure, weights: Mapping[Cell, float], period: Period) -> tuple[float, ...]:
    """For every seed that all these cells have finished, the weighted sum of their measurements."""
    finished = study.finished
    by_seed = {
        cell: {run.spec.seed: run.measured(measure, period) for run in finished.get(cell, ())} for cell in weights
    }
    shared = set.intersection(*(set(values) for values in by_seed.values()))
    return tuple(sum(weight * by_seed[cell][seed] for cell, weight in weights.items()) for seed in sorted(shared))
