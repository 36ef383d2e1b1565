"""A plan, which is a TOML file, becomes an experiment; every mistake is named by its line and key."""

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from bcsc.errors import InvalidArgumentError, check_at_least, check_choice
from bcsc.experiments.experiment import PERIODS, Axis, Experiment, as_file_name
from bcsc.experiments.planning.arms import (
    Arm,
    Condition,
    Scaled,
    Settings,
    Tuned,
    Tuning,
    check_blocks,
    check_distinct,
    check_multiple,
    read_setting,
    sweep,
)
from bcsc.experiments.planning.places import MisplacedError, Place, at, named_by_line
from bcsc.experiments.planning.sayings import MEASURES, PlannedClaim, read_saying
from bcsc.runs.spec import RunSpec

KINDS_OF_VALUE: Mapping[type, str] = {int: "a whole number", str: "a text", dict: "a table", list: "a list"}
PLAN_KEYS: Mapping[str, type] = {
    **dict.fromkeys(("title", "question", "source", "budget", "compared_by"), str),
    "numbers": str,  # of older plans, which named the paper's; without effect
    **dict.fromkeys(("seeds", "condition", "arm", "claim"), list),
    **dict.fromkeys(("recipe", "tuning"), dict),
}
CLAIM_KEYS: Mapping[str, type] = {
    **dict.fromkeys(("name", "statement", "source", "measure", "from", "to"), str),
    "says": object,
    "periods": list,
}
# settings that have a place of their own in a plan
ELSEWHERE = {
    "seed": "Give seeds = [0, 1, 2] at the top.",
    "validation": "Samples are held out to tune: [tuning] with validation = 5000.",
    "model": 'Give model = ["lenet4", ...] in the recipe.',
    "threads": "Give a number in the recipe: it changes no result.",
}
AXES: Mapping[str, Axis] = {axis.replace("_", " "): axis for axis in get_args(Axis)}
Check = Callable[[str, Any], None]


def read_plan(path: Path, check: Check | None = None) -> tuple[Experiment, str]:
    """The experiment that a file describes, which has the file's name, and the file's text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"The plan {path} cannot be read: {error}") from error
    return experiment_from_toml(text, as_file_name(path.stem) or "plan", str(path), check), text


def experiment_from_toml(text: str, name: str, where: str, check: Check | None = None) -> Experiment:
    """The experiment that a plan describes; ``where`` names the plan in messages.

    ``check(name, value)`` refuses a value of a setting that can be told to be wrong only where torch is at hand.
    """
    try:
        plan = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a plain ValueError
        raise InvalidArgumentError(f"{where} is not a TOML file: {error}") from error
    with named_by_line(text, where):
        experiment = _experiment(plan, name)
        if check is not None:
            _check_values(plan, check)
        return experiment


def _experiment(plan: Mapping[str, Any], name: str) -> Experiment:
    _check_keys(plan, PLAN_KEYS, ())
    recipe, models, swept, tuned = _recipe(plan.get("recipe", {}))
    arms = [_labelled("arm", index, table, tuned) for index, table in enumerate(plan.get("arm", ()))]
    conditions = [
        _labelled("condition", index, table, swept) for index, table in enumerate(plan.get("condition", [{}]))
    ]
    experiment = Experiment(
        name=name,
        title=plan.get("title", name),
        question=plan.get("question", ""),
        source=plan.get("source", ""),
        models=models,
        arms=tuple(Arm(*arm) for arm in arms),
        recipe=recipe,
        conditions=tuple(Condition(*condition) for condition in conditions),
        seeds=_seeds(plan, ("seeds",), (0, 1, 2)),
        budget=_axis(plan, "budget", "epochs"),
        compared_by=_axis(plan, "compared_by", plan.get("budget", "epochs")),
    )
    with at("tuning", "seeds"):
        experiment = replace(experiment, tuning=_tuning(plan.get("tuning")))
    _check_arms(experiment)
    _check_labels(experiment)
    claims = [_claim(index, table, experiment) for index, table in enumerate(plan.get("claim", ()))]
    return replace(experiment, claims=tuple(claims))


def _axis(plan: Mapping[str, Any], key: str, default: str) -> Axis:
    with at(key):
        return AXES[check_choice(key, plan.get(key, default), AXES)]


def _seeds(table: Mapping[str, Any], place: Place, default: tuple[int, ...]) -> tuple[int, ...]:
    with at(*place):
        seeds = tuple(check_at_least("A seed", seed, 0) for seed in table.get("seeds", default))
        check_distinct("seed", seeds)
    return seeds


def _tuning(table: Mapping[str, Any] | None) -> Tuning | None:
    if table is None:
        return None
    _check_keys(table, {"validation": int, "seeds": list}, ("tuning",))
    with at("tuning", "validation"):
        validation = check_at_least("validation", table.get("validation"), 1)
    return Tuning(validation, _seeds(table, ("tuning", "seeds"), Tuning(1).seeds))


def _check_keys(table: Any, known: Mapping[str, type], place: Place) -> None:
    """Refuse what is no table, what it should not hold, and what is of another kind than it should be."""
    if not isinstance(table, dict):
        raise MisplacedError(place, f"{place[0]} must be a table, got {table!r}.")
    for key, value in table.items():
        with at(*place, key):
            check_choice(f"A key of a {place[0] if place else 'plan'}", key, known)
            if not isinstance(value, known[key]):
                raise InvalidArgumentError(f"{key} must be {KINDS_OF_VALUE[known[key]]}, got {value!r}.")


def _recipe(table: Mapping[str, Any]) -> tuple[RunSpec, tuple[str, ...], Settings, Settings]:
    """What all runs share, the networks, what every condition goes through several values of, and what is tuned."""
    settings = _settings(table, ("recipe",), ["seed", "validation"])
    models = settings.pop("model", RunSpec().model)
    swept = {name: value for name, value in settings.items() if isinstance(value, tuple)}
    tuned = {name: value for name, value in settings.items() if isinstance(value, Tuned)}
    recipe = RunSpec(**{name: value for name, value in settings.items() if name not in {**swept, **tuned}})
    return recipe, models if isinstance(models, tuple) else (models,), swept, tuned


def _labelled(kind: str, index: int, table: Any, shared: Settings) -> tuple[str, dict[str, Any]]:
    """The label and the settings of an arm or a condition, with those that all of its kind share."""
    if not isinstance(table, dict):
        raise MisplacedError((kind,), f"{kind} must be a list of tables, as [[{kind}]] writes them.")
    label = table.get("label", "" if kind == "condition" else None)
    own = _settings({name: value for name, value in table.items() if name != "label"}, (kind, index), list(ELSEWHERE))
    settings = {**shared, **own}
    with at(kind, index, "label"):
        if not isinstance(label, str) or (kind == "arm" and not label.strip()):
            raise InvalidArgumentError(f"The {kind} must have a label, a text, got {label!r}.")
        names = [name for name, value in settings.items() if not isinstance(value, Scaled | Tuned)]
        names += ["M"] if "blocks" in settings else []
        for word in re.findall(r"\{(.*?)\}", label):
            check_choice("What a label names in braces", word, names)
    return label, settings


def _settings(table: Mapping[str, Any], place: Place, elsewhere: Collection[str]) -> dict[str, Any]:
    """Settings of runs, each checked by itself: values, sweeps of them, and multiples of the recipe's."""
    known = [f.name for f in fields(RunSpec)] + (["M"] if place[0] == "arm" else [])
    found: dict[str, Any] = {}
    for name, value in table.items():
        with at(*place, name):
            check_choice("A setting", name, known)
            if name in elsewhere:
                raise InvalidArgumentError(f"{name} has another place. {ELSEWHERE[name]}")
            found[name] = read_setting(name, value, in_arm=place[0] == "arm", in_recipe=place[0] == "recipe")
            is_of_conditions = place[0] == "condition" or (place[0] == "recipe" and isinstance(found[name], tuple))
            if is_of_conditions and name in ("method", "blocks"):
                raise InvalidArgumentError(f"{name} is what arms differ in. Give its values in the arms.")
            if is_of_conditions and name == "threads":
                raise InvalidArgumentError(f"{name} has one value. {ELSEWHERE[name]}")
    return found


def _check_arms(experiment: Experiment) -> None:
    """What an arm leaves to the recipe, to the budget, to the conditions or to tuning must be found there."""
    shared = {name for condition in experiment.conditions for name in condition.settings}
    with at("budget"):
        if "epochs" in shared and experiment.budget != "epochs":
            raise InvalidArgumentError("The budget sets the epochs of all runs. Give one number of them in the recipe.")
    for index, arm in enumerate(experiment.arms):
        for name, value in arm.settings.items():
            with at("arm", index, name):
                if name in shared:
                    raise InvalidArgumentError(f"{name} is set by a condition too. Leave one of them out.")
                if isinstance(value, Scaled):
                    check_multiple(name, value, arm, experiment.recipe)
                if isinstance(value, Tuned) and experiment.tuning is None:
                    raise InvalidArgumentError("To tune, hold out training samples: [tuning] with validation = 5000.")
        with at("arm", index, "epochs"):
            if "epochs" in arm.settings and experiment.budget != "epochs":
                raise InvalidArgumentError("The budget sets the epochs of every arm. Give epochs in the recipe.")
        with at("arm", index, "blocks"):
            check_blocks(arm, experiment.recipe)


def _check_labels(experiment: Experiment) -> None:
    """Every arm and condition must have a label and a folder of its own."""
    kinds: dict[str, Sequence[Arm | Condition]] = {"arm": experiment.arms, "condition": experiment.conditions}
    for kind, tables in kinds.items():
        with at(kind):
            check_distinct(kind, [label for each in tables for label, _ in sweep(each.label, each.settings)])
    with at("arm"):
        check_distinct("name of a run (letters and digits of its labels)", [cell.name for cell in experiment.cells()])


def _check_values(plan: Mapping[str, Any], check: Check) -> None:
    tables: dict[Place, Mapping[str, Any]] = {("recipe",): plan.get("recipe", {})}
    tables |= {(kind, index): table for kind in ("condition", "arm") for index, table in enumerate(plan.get(kind, ()))}
    for place, table in tables.items():
        for name, value in table.items():
            with at(*place, name):
                value = value.get("tune", value) if isinstance(value, dict) else value
                for item in value if isinstance(value, list) else [value]:
                    check(name, item)


def _claim(index: int, table: Any, experiment: Experiment) -> PlannedClaim:
    """A claim; without a statement of its own it states what it says."""
    place = ("claim", index)
    _check_keys(table, CLAIM_KEYS, place)
    sentences = table.get("says", [])
    with at(*place, "says"):
        sentences = sentences if isinstance(sentences, list) else [sentences]
        check_distinct("sentence", sentences)
    with at(*place, "periods"):
        wanted = [check_choice("A period", period, PERIODS) for period in table.get("periods", ())]
        periods = [period for period in PERIODS if period in wanted]
    with at(*place, "measure"):
        measure = check_choice("A measure", table.get("measure", "test_accuracy"), MEASURES)
    labels = dict.fromkeys(cell.condition for cell in experiment.cells())
    ends = {}
    for key, default in (("from", next(iter(labels))), ("to", next(reversed(labels)))):
        with at(*place, key):
            ends[key] = check_choice("A condition", table.get(key, default), labels)
    with at(*place, "says"):
        sayings = tuple(read_saying(sentence, arm_names(experiment), periods) for sentence in sentences)
        kinds = {saying.kind for saying in sayings}
        if ends["from"] == ends["to"] and "falls" in kinds:
            raise InvalidArgumentError("To fall there must be two conditions: from one to the other.")
        if measure != "test_accuracy" and "falls" in kinds:
            raise InvalidArgumentError("What falls by points is the test accuracy. Leave measure out.")
        if "slopes" in kinds and len({cell.blocks for cell in experiment.cells()}) < 2:
            raise InvalidArgumentError("To rise or fall with M there must be arms with several: blocks = [2, 4, 8].")
    for key in {"from", "to"} & set(table):
        with at(*place, key):
            if "falls" not in kinds:
                raise InvalidArgumentError(f"{key} is for a claim that an arm falls. Leave it out.")
    by = "" if measure == "test_accuracy" else f", by the {MEASURES[measure]}"
    statement = table.get("statement", f"{', and '.join(sentences)}{by}.")
    return PlannedClaim(
        table.get("name", as_file_name(f"{experiment.name} {statement}")),
        statement,
        table.get("source", experiment.source),
        tuple(replace(saying, conditions=(ends["from"], ends["to"]), measure=measure) for saying in sayings),
    )


def arm_names(experiment: Experiment) -> list[str]:
    """What an arm can be called in a claim: its label as in the plan, and as in the table."""
    return list(dict.fromkeys([*(arm.label for arm in experiment.arms), *(cell.arm for cell in experiment.cells())]))
