"""The experiments of the paper and one of ours, each a plan in the folder ``plans``, whole or cut down."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from bcsc.choices import Period
from bcsc.errors import InvalidArgumentError, check_at_least, check_choice
from bcsc.experiments.experiment import PERIODS, Cell, Experiment
from bcsc.experiments.planning.arms import Arm, Condition, Scaled, Tuning
from bcsc.experiments.planning.plan_file import experiment_from_toml

NAMES = ("blocks", "outliers", "adagrad", "dropout", "cifar10", "cifar10-deep", "cifar100", "compute")


def plan_text(name: str) -> str:
    """The plan of that name, as it is in the package."""
    return resources.files("bcsc.experiments").joinpath("plans", f"{name}.toml").read_text(encoding="utf-8")


EXPERIMENTS: Mapping[str, Experiment] = {
    name: experiment_from_toml(plan_text(name), name, f"the plan {name}") for name in NAMES
}


def cut_down(
    experiment: Experiment,
    *,
    epochs: int | None = None,
    models: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    subset: int | None = None,
    conditions: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
) -> Experiment:
    """A smaller version of an experiment, which says what it leaves out; a network may be one of the others."""
    full, planned = experiment.recipe.epochs, experiment.models
    if epochs is not None and check_at_least("epochs", epochs, 1) > full:
        raise InvalidArgumentError(f"epochs must be at most the {full} of {experiment.name}, got {epochs}.")
    refuse_cuts_that_do_not_reach(experiment, {"epochs": epochs, "subset": subset}, blocks or ())
    known = dict.fromkeys([*(model for model in planned if model in (models or planned)), *(models or ())])
    recipe = replace(
        experiment.recipe,
        epochs=full if epochs is None else epochs,
        subset=experiment.recipe.subset if subset is None else subset,
    )
    small = replace(
        experiment,
        models=tuple(known),
        seeds=tuple(check_at_least("A seed", seed, 0) for seed in dict.fromkeys(seeds or experiment.seeds)),
        arms=tuple(with_blocks(arm, blocks) for arm in experiment.arms) if blocks else experiment.arms,
        recipe=recipe,
        tuning=with_fewer_held_out(experiment.tuning, subset),
    )
    if conditions:
        labels = [cell.condition for cell in small.cells()]
        small = replace(small, only_conditions=chosen_labels("condition", conditions, labels))
    if arms:
        small = replace(small, only_arms=chosen_labels("arm", arms, [cell.arm for cell in small.cells()]))
    return experiment if small == experiment else replace(small, whole=experiment.whole or experiment)


def joined_cut(whole: Experiment, earlier: Mapping[str, Any], cut: Mapping[str, Any]) -> dict[str, Any]:
    """How to cut down to all that either of two cuts leaves, which cut the epochs and samples alike."""
    uncut = {"models": whole.models, "seeds": whole.seeds, "blocks": whole.blocks, "conditions": (), "arms": ()}
    joined = {name: value for name, value in cut.items() if name not in uncut}
    for name, everything in uncut.items():
        parts = [some.get(name) or everything for some in (earlier, cut)]
        union = list(dict.fromkeys([*parts[0], *parts[1]])) if all(parts) else []
        joined |= {name: union} if set(union) != set(everything) else {}
    return joined


def refuse_cuts_that_do_not_reach(
    experiment: Experiment, numbers: Mapping[str, int | None], blocks: Sequence[int]
) -> None:
    """Refuse to cut what an arm or a condition has of its own: it would stay, and the results would say otherwise."""
    tables: list[Arm | Condition] = [*experiment.arms, *experiment.conditions]
    for name in [name for name, number in numbers.items() if number is not None]:
        for each in tables:
            if name in each.settings and not isinstance(each.settings[name], Scaled):
                who = f"{each.label!r} has {name} of its own" if each.label else f"the recipe has several {name}"
                raise InvalidArgumentError(f"{name} cannot be cut down: {who}. Change the plan.")
    for arm in experiment.arms if blocks else ():
        is_plain = arm.settings.get("method", experiment.recipe.method) == "sgd"
        if not is_plain and not arm.numbers_of_blocks:
            raise InvalidArgumentError(f"blocks do not reach {arm.label!r}, which has the recipe's. Give it blocks.")


def with_fewer_held_out(tuning: Tuning | None, subset: int | None) -> Tuning | None:
    """No more than a fifth of a subset is held out."""
    if tuning is None or subset is None:
        return tuning
    return replace(tuning, validation=min(tuning.validation, max(1, subset // 5)))


def with_blocks(arm: Arm, blocks: Sequence[int]) -> Arm:
    """The arm with these numbers of blocks, if it has any."""
    numbers = tuple(sorted({check_at_least("blocks (one block is SGD, which is there anyway)", n, 2) for n in blocks}))
    given = [name for name in ("M", "blocks") if name in arm.settings]
    return replace(arm, settings={**arm.settings, **dict.fromkeys(given, numbers)})


def chosen_labels(what: str, wanted: Sequence[str], labels: Iterable[str]) -> tuple[str, ...]:
    """The labels that are wanted, in their own order; they may be given in letters of any case."""
    known = dict.fromkeys(label for label in labels if label)
    if not known:
        raise InvalidArgumentError(f"The plan has no {what} to choose, got {', '.join(wanted)}. Leave it out.")
    lower = {label.lower(): label for label in known}
    chosen = {lower.get(word.lower(), word) for word in wanted}
    for label in sorted(chosen):
        check_choice(f"The {what}", label, known)
    return tuple(label for label in known if label in chosen)


def is_of_the_catalog(experiment: Experiment) -> bool:
    """Whether it is one of the package's, whole or cut down; a plan of one's own may have its name."""
    return EXPERIMENTS.get(experiment.name) == (experiment.whole or experiment)


def paper_numbers(experiment: Experiment) -> dict[tuple[Cell, Period], float]:
    """The paper's test accuracies, in percent, by cell and period, where it has a table of the experiment."""
    table_file = resources.files("bcsc.experiments").joinpath("paper", f"{experiment.name}.csv")
    if not is_of_the_catalog(experiment) or not table_file.is_file():
        return {}
    text = table_file.read_text(encoding="utf-8")
    cells = {(cell.model, cell.condition, cell.arm): cell for cell in experiment.cells()}
    table = {}
    for row in csv.DictReader(text.splitlines()):
        cell = cells.get((row["model"], row["condition"], row["arm"]))
        period = check_choice("A period", row["period"], PERIODS)
        if cell is not None:
            table[cell, period] = float(row["accuracy"])
    return table
