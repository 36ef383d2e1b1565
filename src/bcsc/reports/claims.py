"""Claims, which are in the plans, put to the test: each can hold, fail, or stay open.

What a claim says is broken into cases. A case is one number per seed that the claim says lies above (or below) a
bound: the gain of one arm over another, say, lies above zero. The mean over the seeds and its 95 % confidence interval
(Student's t, the seeds paired) decide: the whole interval on the claimed side and the case holds, on the other side and
it does not, else it is not decided. One seed has no interval, so it decides nothing, and neither does an arm that
guesses, or that diverged at a seed, or an average over other epochs than those it is compared with. What was found in a
part of the experiments holds, or does not hold, so far.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from statistics import fmean, stdev
from typing import Literal

from bcsc.choices import Period
from bcsc.experiments.catalog import EXPERIMENTS
from bcsc.experiments.experiment import NUM_CLASSES, PERIODS, Cell
from bcsc.experiments.planning.sayings import Saying, Side
from bcsc.experiments.study import Study

CaseState = Literal["holds", "does not hold", "not decided"]
State = Literal["holds", "holds so far", "does not hold", "does not hold so far", "not decided"]

# Two-sided 95 % quantiles of Student's t for 1, 2, 3... degrees of freedom; the last is a safe bound for more.
T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
GUESSING = 0.02  # an arm that has come less than this share of the way from guessing to perfect has learned nothing


@dataclass(frozen=True)
class Case:
    """One number per seed, in percentage points, and the side of a bound on which the claim says it lies."""

    label: str
    values: tuple[float, ...]
    caveat: str
    side: Side = "above"
    bound: float = 0.0
    undecidable: tuple[str, ...] = ()  # in words: arms that guess or diverged at a seed, averages of other moments
    cells: tuple[Cell, ...] = ()  # whose runs the numbers are from
    folders: tuple[Path, ...] = ()  # of those runs

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
        interval = "" if math.isinf(self.margin) else f" ± {self.margin:.2f}"
        seeds = len(self.values)
        gain = f"{fmean(self.values):+.2f}{interval} ({seeds} seed{'s' if seeds > 1 else ''})"
        return "; ".join([gain, *self.undecidable])


@dataclass(frozen=True)
class Claim:
    """What is claimed, by whom, and what it says of the arms of each experiment that puts it to the test."""

    name: str
    statement: str
    source: str
    rules: Mapping[str, tuple[Saying, ...]]


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
    """A verdict for every claim where there are studies of the package's plans, and for those of the other studies."""
    named = [study for study in studies if study.is_named]
    some = claims if named else ()
    found = [verdict_on(claim, [study for study in named if study.name in claim.rules]) for claim in some]
    for study in studies:
        if not study.is_named:
            own = [Claim(c.name, c.statement, c.source, {study.name: c.sayings}) for c in study.claims]
            found += [verdict_on(claim, [study]) for claim in own]
    return found


def verdict_on(claim: Claim, found: Sequence[Study]) -> Verdict:
    """The cases of all the studies, and how far they reach; an experiment without a study is missed.

    Of several studies of one experiment the one with the most finished runs speaks.
    """
    speaking: dict[str, Study] = {}
    for study in sorted(found, key=lambda study: study.num_finished):
        speaking[study.name] = study
    studies = [speaking[name] for name in claim.rules if name in speaking]
    missing = [name for name in claim.rules if name not in speaking]
    scopes = [study.reach if len(claim.rules) == 1 else f"{study.reach} of {study.name}" for study in studies]
    scopes += [f"no runs of {', '.join(missing)}"] if missing and studies else []
    silent = [study.folder.name for study in found if study not in studies and study.folder is not None]
    scopes += [f"not counted, as it has fewer runs: {name}" for name in silent]
    return Verdict(
        claim,
        tuple(
            replace(case, label=f"{study.name}, {case.label}") if len(claim.rules) > 1 else case
            for study in studies
            for saying in claim.rules[study.name]
            for case in cases_of(study, saying)
        ),
        "; ".join(scopes),
        is_whole=not missing and not any(study.caveat for study in studies),
    )


def cases_of(study: Study, saying: Saying) -> list[Case]:
    """What is said, place by place; something of which there are no runs at all stays open."""
    rule = {"over": is_over, "rises": rises_with_blocks, "falls": falls_by}[saying.kind]
    said_of = " over ".join(" and ".join(labels) for labels in (saying.arms, saying.others) if labels)
    any_number = said_of.replace("M={M}", "M").replace("{M}", "M")
    return rule(study, saying) or [Case(f"{any_number}: left out of this study", (), study.caveat)]


def cells_called(study: Study, names: Sequence[str]) -> list[Cell]:
    """The cells of arms that are called by their label in the plan, or by that in the table."""
    return [cell for cell in study.runs if cell.arm in names or study.arm_labels.get(cell.arm) in names]


def is_over(study: Study, saying: Saying) -> list[Case]:
    """In every network, condition and period an arm is more accurate than each of the others, M for M."""
    return [
        case_of(
            study,
            f"{cell.place}: {cell.arm} over {other.arm}, {PERIODS[period].lower()}",
            {cell: 1.0, other: -1.0},
            period,
        )
        for cell in cells_called(study, saying.arms)
        for name in saying.others
        for other in cells_called(study, [name])
        if other.place == cell.place and (other.blocks == cell.blocks or not are_by_m(study, cell, name))
        for period in saying.periods
    ]


def are_by_m(study: Study, cell: Cell, other: str) -> bool:
    """Whether the labels of an arm and of another have their M in them, in the plan."""
    return "{M}" in other and "{M}" in study.arm_labels.get(cell.arm, "")


def rises_with_blocks(study: Study, saying: Saying) -> list[Case]:
    """In every network and condition the accuracy rises with M: a straight line through it over log2 M slopes up.

    A fall from one M to the next that the seeds decide is a case, too, and sinks the claim.
    """
    places: dict[str, list[Cell]] = {}
    for cell in sorted(cells_called(study, saying.arms), key=lambda cell: cell.blocks):
        places.setdefault(cell.place, []).append(cell)
    found = []
    for (place, cells), period in product(places.items(), saying.periods):
        low, high = cells[0].blocks, cells[-1].blocks
        if low < high:
            label = f"{place}: points per doubling of M, from {low} to {high}"
            found.append(case_of(study, label, slope_weights(cells), period))
        steps = [
            case_of(study, f"{place}: {more.arm} over {less.arm}", {more: 1.0, less: -1.0}, period)
            for less, more in pairwise(cells)
        ]
        found += [step for step in steps if step.state == "does not hold"]
    return found


def slope_weights(cells: Sequence[Cell]) -> dict[Cell, float]:
    """The weights that make of the cells' accuracies the least-squares slope over log2 M."""
    exponents = [math.log2(cell.blocks) for cell in cells]
    centred = [exponent - fmean(exponents) for exponent in exponents]
    total = sum(x * x for x in centred)
    return {cell: x / total for cell, x in zip(cells, centred, strict=True)}


def falls_by(study: Study, saying: Saying) -> list[Case]:
    """In every network an arm falls, from the first condition to the second, by so many points, or by fewer."""
    first, second = saying.conditions
    how = {"above": "more", "below": "less"}[saying.side]
    amount = f"{how} than {saying.bound:g} point{'' if saying.bound == 1 else 's'}"
    return [
        case_of(
            study,
            f"{cell.network}: {cell.arm} falls by {amount}",
            {cell: 1.0, Cell(cell.model, second, cell.arm, cell.blocks): -1.0},
            period,
            side=saying.side,
            bound=saying.bound,
        )
        for cell in cells_called(study, saying.arms)
        if cell.condition == first
        for period in saying.periods
    ]


def case_of(
    study: Study, label: str, weights: Mapping[Cell, float], period: Period, *, side: Side = "above", bound: float = 0.0
) -> Case:
    """The case that a weighted sum of accuracies lies on a side of a bound."""
    found = [words for cell in weights for words in (at_chance(study, cell, period), diverged(study, cell))]
    found.append(of_other_moments(study, weights, period))
    undecidable = tuple(dict.fromkeys(filter(None, found)))
    folders = tuple(run.folder for cell in weights for run in study.runs.get(cell, ()))
    values = paired(study, weights, period)
    return Case(label, values, study.caveat, side, bound, undecidable, tuple(weights), folders)


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


def paired(study: Study, weights: Mapping[Cell, float], period: Period) -> tuple[float, ...]:
    """For every seed that all these cells have finished, the weighted sum of their accuracies."""
    finished = study.finished
    by_seed = {cell: {run.spec.seed: run.accuracy(period) for run in finished.get(cell, ())} for cell in weights}
    shared = set.intersection(*(set(values) for values in by_seed.values()))
    return tuple(sum(weight * by_seed[cell][seed] for cell, weight in weights.items()) for seed in sorted(shared))


def claims_of_the_catalog() -> tuple[Claim, ...]:
    """The claims of the package's plans; those that share a name are one."""
    claims: dict[str, Claim] = {}
    for experiment in EXPERIMENTS.values():
        for planned in experiment.claims:
            claim = claims.get(planned.name, Claim(planned.name, planned.statement, planned.source, {}))
            claims[planned.name] = replace(claim, rules={**claim.rules, experiment.name: planned.sayings})
    return tuple(claims.values())


CLAIMS = claims_of_the_catalog()
