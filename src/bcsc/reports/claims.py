"""Claims, which are in the plans, put to the test: each can hold, fail, or stay open.

What a claim says is broken into cases. A case is one number per seed that the claim says lies above (or below) a
bound: the gain of one arm over another, say, lies above zero. The mean over the seeds and its 95 % confidence interval
(Student's t, the seeds paired) decide: the whole interval on the claimed side and the case holds, on the other side and
it does not, else it is not decided. One seed has no interval, so it decides nothing, and neither does an arm that
guesses, or that diverged at a seed, or an average over other epochs than those it is compared with. What was found in a
part of the experiments holds, or does not hold, so far.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from statistics import fmean
from typing import Literal

from bcsc.experiments.catalog import EXPERIMENTS
from bcsc.experiments.experiment import Cell
from bcsc.experiments.planning.sayings import Saying
from bcsc.experiments.study import Study
from bcsc.reports.judging.cases import Case, case_of

State = Literal["holds", "holds so far", "does not hold", "does not hold so far", "not decided"]


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
            own = [
                Claim(c.name, filled_in(c.statement, study), c.source, {study.name: c.sayings}) for c in study.claims
            ]
            found += [verdict_on(claim, [study]) for claim in own]
    return found


def filled_in(statement: str, study: Study) -> str:
    """The statement with ``BCSC M={M}`` called as in the table, where there is one M alone."""
    for label in dict.fromkeys(study.arm_labels.values()):
        in_table = [name for name, planned in study.arm_labels.items() if planned == label]
        statement = statement.replace(label, in_table[0]) if len(in_table) == 1 else statement
    return statement


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
    rule = {"compares": compares, "slopes": slopes_with_blocks, "falls": falls_by}[saying.kind]
    said_of = f" {saying.word} ".join(" and ".join(labels) for labels in (saying.arms, saying.others) if labels)
    any_number = said_of.replace("M={M}", "M").replace("{M}", "M")
    return rule(study, saying) or [
        Case(f"{any_number}: left out of this study", (), study.caveat, measure=saying.measure)
    ]


def cells_called(study: Study, names: Sequence[str]) -> list[Cell]:
    """The cells of arms that are called by their label in the plan, or by that in the table."""
    return [cell for cell in study.runs if cell.arm in names or study.arm_labels.get(cell.arm) in names]


def compares(study: Study, saying: Saying) -> list[Case]:
    """In every network, condition and period an arm lies above (or below) each of the others, M for M."""
    return [
        case_of(study, saying, f"{cell.place}: {cell.arm} {saying.word} {other.arm}", {cell: 1.0, other: -1.0}, period)
        for cell in cells_called(study, saying.arms)
        for other in compared_with(study, cell, saying.others)
        for period in saying.periods
    ]


def compared_with(study: Study, cell: Cell, names: Sequence[str]) -> list[Cell]:
    """The cells of other arms at the place of a cell; of arms that both have an M in their label those of its M."""
    return [
        other
        for name in names
        for other in cells_called(study, [name])
        if other.place == cell.place and (other.blocks == cell.blocks or not are_by_m(study, cell, name))
    ]


def are_by_m(study: Study, cell: Cell, other: str) -> bool:
    """Whether the labels of an arm and of another have their M in them, in the plan."""
    return "{M}" in other and "{M}" in study.arm_labels.get(cell.arm, "")


def slopes_with_blocks(study: Study, saying: Saying) -> list[Case]:
    """In every network and condition the measure rises (or falls) with M: so does a straight line over log2 M.

    A step from one M to the next that the seeds decide to go the other way is a case, too, and sinks the claim.
    """
    found = []
    for cells, period in product(lines_over_blocks(study, cells_called(study, saying.arms)), saying.periods):
        place, low, high = cells[0].place, cells[0].blocks, cells[-1].blocks
        if low < high:
            label = f"{place}: per doubling of M, from {low} to {high}"
            found.append(case_of(study, saying, label, slope_weights(cells), period))
        steps = [
            case_of(study, saying, f"{place}: {more.arm} {saying.word} {less.arm}", {more: 1.0, less: -1.0}, period)
            for less, more in pairwise(cells)
            if less.blocks < more.blocks
        ]
        found += [step for step in steps if step.state == "does not hold"]
    return found


def lines_over_blocks(study: Study, cells: Sequence[Cell]) -> list[list[Cell]]:
    """At every place a line for each arm with several M, ascending; those with one M, such as SGD, are in all lines."""
    lines = []
    for place in dict.fromkeys(cell.place for cell in cells):
        arms: dict[str, list[Cell]] = {}
        for cell in cells:
            if cell.place == place:
                arms.setdefault(study.arm_labels.get(cell.arm, cell.arm), []).append(cell)
        several = [own for own in arms.values() if len({cell.blocks for cell in own}) > 1]
        single = [cell for own in arms.values() if own not in several for cell in own]
        lines += [sorted([*single, *own], key=lambda cell: cell.blocks) for own in several or [[]]]
    return lines


def slope_weights(cells: Sequence[Cell]) -> dict[Cell, float]:
    """The weights that make of the cells' accuracies the least-squares slope over log2 M."""
    exponents = [math.log2(cell.blocks) for cell in cells]
    centred = [exponent - fmean(exponents) for exponent in exponents]
    total = sum(x * x for x in centred)
    return {cell: x / total for cell, x in zip(cells, centred, strict=True)}


def falls_by(study: Study, saying: Saying) -> list[Case]:
    """In every network an arm falls, from the first condition to the second, by so many points, or by more than others.

    One that falls by more than others do is compared with each of them.
    """
    first, second = saying.conditions
    how = {"above": "more", "below": "less"}[saying.side]
    amount = f"{saying.bound:g} point{'' if saying.bound == 1 else 's'}"

    def fall(cell: Cell, sign: float) -> dict[Cell, float]:
        return {cell: sign, replace(cell, condition=second): -sign}

    return [
        case_of(study, saying, f"{cell.network}: {cell.arm} falls by {how} than {than}", weights, period)
        for cell in cells_called(study, saying.arms)
        if cell.condition == first
        for than, weights in [
            *([] if saying.others else [(amount, fall(cell, 1.0))]),
            *(
                (other.arm, {**fall(cell, 1.0), **fall(other, -1.0)})
                for other in compared_with(study, cell, saying.others)
            ),
        ]
        for period in saying.periods
    ]


def claims_of_the_catalog() -> tuple[Claim, ...]:
    """The claims of the package's plans; those that share a name are one."""
    claims: dict[str, Claim] = {}
    for experiment in EXPERIMENTS.values():
        for planned in experiment.claims:
            claim = claims.get(planned.name, Claim(planned.name, planned.statement, planned.source, {}))
            claims[planned.name] = replace(claim, rules={**claim.rules, experiment.name: planned.sayings})
    return tuple(claims.values())


CLAIMS = claims_of_the_catalog()
