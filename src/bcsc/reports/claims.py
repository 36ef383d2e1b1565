"""The claims, listed once: each is data with a rule that can fail.

A rule breaks a claim into cases. A case is one number per seed that the claim says lies above (or below) a bound: the
gain of one arm over another, say, lies above zero. The mean over the seeds and its 95 % confidence interval (Student's
t, the seeds paired) decide: the whole interval on the claimed side and the case holds, on the other side and it does
not, else it is not decided. One seed has no interval, so it decides nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from bcsc.choices import Period
from bcsc.experiments.catalog import PERIODS, Cell
from bcsc.experiments.study import Study

State = Literal["holds", "does not hold", "not decided"]

# Two-sided 95 % quantiles of Student's t for 1, 2, 3... degrees of freedom; the last is a safe bound for more.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
HARDLY = 1.0  # "hardly falls": by less than this many percentage points


@dataclass(frozen=True)
class Case:
    """One number per seed, in percentage points, and the side of a bound on which the claim says it lies."""

    label: str
    values: tuple[float, ...]
    caveat: str
    side: Literal["above", "below"] = "above"
    bound: float = 0.0

    @property
    def margin(self) -> float:
        """Half the width of the confidence interval."""
        degrees = len(self.values) - 1
        if degrees < 1:
            return math.inf
        return T_95[min(degrees, len(T_95)) - 1] * stdev(self.values) / math.sqrt(len(self.values))

    @property
    def state(self) -> State:
        if not self.values or math.isinf(self.margin):
            return "not decided"
        excess = fmean(self.values) - self.bound
        if self.side == "below":
            excess = -excess
        return "holds" if excess > self.margin else "does not hold" if excess < -self.margin else "not decided"

    @property
    def numbers(self) -> str:
        """The mean, its interval and the number of seeds, as text."""
        if not self.values:
            return "no finished runs"
        interval = "" if math.isinf(self.margin) else f" ± {self.margin:.2f}"
        seeds = len(self.values)
        return f"{fmean(self.values):+.2f}{interval} ({seeds} seed{'s' if seeds > 1 else ''})"


Rule = Callable[[Study], list[Case]]


@dataclass(frozen=True)
class Claim:
    """What is claimed, by whom, and the rule for each experiment that puts it to the test."""

    name: str
    statement: str
    source: str
    rules: Mapping[str, Rule]


@dataclass(frozen=True)
class Verdict:
    """A claim and its cases: one that fails sinks it, and all must hold for it to hold."""

    claim: Claim
    cases: tuple[Case, ...]

    @property
    def state(self) -> State:
        states = {case.state for case in self.cases}
        if "does not hold" in states:
            return "does not hold"
        return "holds" if states == {"holds"} else "not decided"


def judge(claims: Sequence[Claim], studies: Sequence[Study]) -> list[Verdict]:
    """A verdict for every claim; one that no study looks at has no cases."""
    return [
        Verdict(
            claim,
            tuple(case for study in studies if study.name in claim.rules for case in claim.rules[study.name](study)),
        )
        for claim in claims
    ]


def above(better: str, others: Sequence[str], periods: Sequence[Period] = ("all", "final")) -> Rule:
    """In every network, condition and period, ``better`` is more accurate than each of the others, for every M."""

    def cases(study: Study) -> list[Case]:
        return [
            Case(
                f"{cell.place}: {cell.arm} over {other.arm}, {PERIODS[period].lower()}",
                paired(study, {cell: 1.0, other: -1.0}, period),
                study.caveat,
            )
            for cell in study.runs
            if cell.arm == better.format(M=cell.blocks)
            for other in study.runs
            if other.place == cell.place and other.arm in [label.format(M=cell.blocks) for label in others]
            for period in periods
        ]

    return cases


def rises_with_blocks(period: Period = "all") -> Rule:
    """In every network and condition the accuracy rises with M: a straight line through it over log2 M slopes up."""

    def cases(study: Study) -> list[Case]:
        found = []
        for place in dict.fromkeys(cell.place for cell in study.runs):
            cells = [cell for cell in study.runs if cell.place == place]
            values = paired(study, slope_weights(cells), period)
            found.append(Case(f"{place}: points per doubling of M", values, study.caveat))
        return found

    return cases


def slope_weights(cells: Sequence[Cell]) -> dict[Cell, float]:
    """The weights that make of the cells' accuracies the least-squares slope over log2 M."""
    exponents = [math.log2(cell.blocks) for cell in cells]
    centred = [exponent - fmean(exponents) for exponent in exponents]
    total = sum(x * x for x in centred)
    return {cell: x / total for cell, x in zip(cells, centred, strict=True)}


def falls_or_not(clean: str, worst: str, falling: str, steady: str, period: Period = "all") -> Rule:
    """From ``clean`` to ``worst``, one arm falls by more than HARDLY and the other, at its largest M, by less."""

    def cases(study: Study) -> list[Case]:
        found = []
        largest = max((cell.blocks for cell in study.runs), default=1)
        for cell in (cell for cell in study.runs if cell.condition == clean):
            other = Cell(cell.model, worst, cell.arm, cell.blocks)
            falls = paired(study, {cell: 1.0, other: -1.0}, period)
            if cell.arm == falling:
                label = f"{cell.network}: {cell.arm} falls by more than {HARDLY:g} point"
                found.append(Case(label, falls, study.caveat, "above", HARDLY))
            elif cell.arm == steady.format(M=largest):
                label = f"{cell.network}: {cell.arm} falls by less than {HARDLY:g} point"
                found.append(Case(label, falls, study.caveat, "below", HARDLY))
        return found

    return cases


def paired(study: Study, weights: Mapping[Cell, float], period: Period) -> tuple[float, ...]:
    """For every seed that all these cells have finished, the weighted sum of their accuracies."""
    finished = study.finished
    by_seed = {cell: {run.spec.seed: run.accuracy(period) for run in finished.get(cell, ())} for cell in weights}
    shared = set.intersection(*(set(values) for values in by_seed.values()))
    return tuple(sum(weight * by_seed[cell][seed] for cell, weight in weights.items()) for seed in sorted(shared))


BCSC = "BCSC M={M}"
BCSC_OVER_SGD = above(BCSC, ("SGD",))
CLAIMS = (
    Claim(
        "bcsc-over-sgd",
        "BCSC is more accurate than SGD in every network, epoch for epoch.",
        "the paper's tables on Cifar10 and Cifar100",
        {"cifar10": BCSC_OVER_SGD, "cifar10-deep": BCSC_OVER_SGD, "cifar100": BCSC_OVER_SGD},
    ),
    Claim(
        "rises-with-m",
        "The accuracy rises with the number of blocks M.",
        "the paper's figure on M",
        {"blocks": rises_with_blocks()},
    ),
    Claim(
        "robust-to-outliers",
        "With up to 15 % training outliers BCSC hardly loses accuracy, while SGD does.",
        "the paper's table on outliers",
        {"outliers": falls_or_not("no outliers", "15 % outliers", "SGD", BCSC)},
    ),
    Claim(
        "persists-with-adagrad",
        "The gain of BCSC over SGD persists inside AdaGrad.",
        "the paper's figure on AdaGrad",
        {"adagrad": above("AdaGrad + BCSC M={M}", ("AdaGrad + SGD",))},
    ),
    Claim(
        "persists-with-dropout",
        "The gain of BCSC over SGD persists at every rate of dropout.",
        "the paper's table on dropout",
        {"dropout": above(BCSC, ("SGD",), ("all",))},
    ),
    Claim(
        "bcsc-over-sbc-and-rbc",
        "BCSC is more accurate than SBC and RBC, which compute as many gradients.",
        "the paper's table on Cifar10",
        {"cifar10": above(BCSC, ("SBC M={M}", "RBC M={M}"))},
    ),
    Claim(
        "bcsc-over-adaptive-rates",
        "BCSC is more accurate than AdaGrad and AdaDelta, epoch for epoch.",
        "the paper's table on Cifar10",
        {"cifar10": above(BCSC, ("AdaGrad", "AdaDelta"))},
    ),
    Claim(
        "left-at-equal-compute",
        "BCSC is still more accurate when SGD may compute as many gradients.",
        "ours: the paper does not ask",
        {"compute": above(BCSC, ("SGD, rate/{M}, {M}x epochs", "SGD, {M}x epochs", "SGD, {M}x batch, {M}x epochs"))},
    ),
)
