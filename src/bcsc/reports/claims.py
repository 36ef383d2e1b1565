"""The claims, listed once: each is data with a rule that can fail.

A rule breaks a claim into cases. A case is one number per seed that the claim says lies above (or below) a bound: the
gain of one arm over another, say, lies above zero. The mean over the seeds and its 95 % confidence interval (Student's
t, the seeds paired) decide: the whole interval on the claimed side and the case holds, on the other side and it does
not, else it is not decided. One seed has no interval, so it decides nothing, and neither does an arm that guesses.
What was found in a part of the experiments holds, or does not hold, so far.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from bcsc.choices import Period
from bcsc.experiments.catalog import NUM_CLASSES, PERIODS, Cell
from bcsc.experiments.study import Study

CaseState = Literal["holds", "does not hold", "not decided"]
State = Literal["holds", "holds so far", "does not hold", "does not hold so far", "not decided"]
Side = Literal["above", "below"]

# Two-sided 95 % quantiles of Student's t for 1, 2, 3... degrees of freedom; the last is a safe bound for more.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
HARDLY = 1.0  # "hardly falls": by less than this many percentage points
GUESSING = 0.02  # an arm that has come less than this share of the way from guessing to perfect has learned nothing


@dataclass(frozen=True)
class Case:
    """One number per seed, in percentage points, and the side of a bound on which the claim says it lies."""

    label: str
    values: tuple[float, ...]
    caveat: str
    side: Side = "above"
    bound: float = 0.0
    at_chance: tuple[str, ...] = ()  # arms that are no better than guessing, in words

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
        if self.at_chance or math.isinf(self.margin):
            return "not decided"
        excess = fmean(self.values) - self.bound
        if self.side == "below":
            excess = -excess
        return "holds" if excess > self.margin else "does not hold" if excess < -self.margin else "not decided"

    @property
    def numbers(self) -> str:
        """The mean, its interval and the number of seeds, as text, and who guesses."""
        if not self.values:
            return "no finished runs"
        interval = "" if math.isinf(self.margin) else f" ± {self.margin:.2f}"
        seeds = len(self.values)
        gain = f"{fmean(self.values):+.2f}{interval} ({seeds} seed{'s' if seeds > 1 else ''})"
        return "; ".join([gain, *self.at_chance])


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
    """A claim and its cases: one that fails sinks it, and all must hold for it to hold.

    ``scope`` says in words how far the verdict reaches; unless it ``is_whole``, it is one so far.
    """

    claim: Claim
    cases: tuple[Case, ...]
    scope: str = ""
    is_whole: bool = True

    @property
    def state(self) -> State:
        states = {case.state for case in self.cases}
        if "does not hold" in states:
            return "does not hold" if self.is_whole else "does not hold so far"
        if states == {"holds"}:
            return "holds" if self.is_whole else "holds so far"
        return "not decided"

    @property
    def sentence(self) -> str:
        """The state and its scope: ``holds so far in 1 of 3 networks, at 2 of 200 epochs, with 3 seeds``."""
        return f"{self.state} {self.scope}" if self.scope else self.state


def judge(claims: Sequence[Claim], studies: Sequence[Study]) -> list[Verdict]:
    """A verdict for every claim; one that no study looks at has no cases."""
    return [verdict_on(claim, [study for study in studies if study.name in claim.rules]) for claim in claims]


def verdict_on(claim: Claim, studies: Sequence[Study]) -> Verdict:
    """The cases of all the studies, and how far they reach; an experiment without a study is missed."""
    missing = [name for name in claim.rules if name not in {study.name for study in studies}]
    scopes = [study.reach if len(claim.rules) == 1 else f"{study.reach} of {study.name}" for study in studies]
    scopes += [f"no runs of {', '.join(missing)}"] if missing and studies else []
    return Verdict(
        claim,
        tuple(case for study in studies for case in claim.rules[study.name](study)),
        "; ".join(scopes),
        is_whole=not missing and not any(study.caveat for study in studies),
    )


def above(better: str, others: Sequence[str], periods: Sequence[Period] = ("all", "final")) -> Rule:
    """In every network, condition and period, ``better`` is more accurate than each of the others, for every M."""

    def cases(study: Study) -> list[Case]:
        return [
            case_of(
                study,
                f"{cell.place}: {cell.arm} over {other.arm}, {PERIODS[period].lower()}",
                {cell: 1.0, other: -1.0},
                period,
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
        places = dict.fromkeys(cell.place for cell in study.runs)
        cells = {place: [cell for cell in study.runs if cell.place == place] for place in places}
        return [
            case_of(study, f"{place}: points per doubling of M", slope_weights(cells[place]), period)
            for place in places
        ]

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
        largest = max((cell.blocks for cell in study.runs), default=1)
        claimed: dict[str, tuple[str, Side]] = {
            falling: ("more", "above"),
            steady.format(M=largest): ("less", "below"),
        }
        found = []
        for cell in (cell for cell in study.runs if cell.condition == clean and cell.arm in claimed):
            how, side = claimed[cell.arm]
            label = f"{cell.network}: {cell.arm} falls by {how} than {HARDLY:g} point"
            weights = {cell: 1.0, Cell(cell.model, worst, cell.arm, cell.blocks): -1.0}
            found.append(case_of(study, label, weights, period, side=side, bound=HARDLY))
        return found

    return cases


def case_of(
    study: Study, label: str, weights: Mapping[Cell, float], period: Period, *, side: Side = "above", bound: float = 0.0
) -> Case:
    """The case that a weighted sum of accuracies lies on a side of a bound."""
    guessing = tuple(words for cell in weights if (words := at_chance(study, cell, period)))
    return Case(label, paired(study, weights, period), study.caveat, side, bound, guessing)


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
