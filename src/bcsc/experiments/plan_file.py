"""A plan, which is a TOML file, becomes an experiment; every mistake is named by its line and key."""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from bcsc.errors import BcscError, InvalidArgumentError, check_at_least, check_choice
from bcsc.experiments.experiment import (
    PERIODS,
    Arm,
    Axis,
    Condition,
    Experiment,
    Scaled,
    as_file_name,
    sweep,
)
from bcsc.experiments.sayings import PlannedClaim, read_saying
from bcsc.runs.spec import RunSpec

KINDS_OF_VALUE: Mapping[type, str] = {str: "a text", dict: "a table", list: "a list"}
PLAN_KEYS: Mapping[str, type] = {
    **dict.fromkeys(("title", "question", "source", "compared_by", "numbers"), str),
    **dict.fromkeys(("seeds", "condition", "arm", "claim"), list),
    "recipe": dict,
}
CLAIM_KEYS: Mapping[str, type] = {
    **dict.fromkeys(("name", "statement", "source", "from", "to"), str),
    "says": object,
    "periods": list,
}
# settings that have a place of their own in a plan
ELSEWHERE = {"seed": "Give seeds = [0, 1, 2] at the top.", "model": 'Give model = ["lenet4", ...] in the recipe.'}
AXES: Mapping[str, Axis] = {axis.replace("_", " "): axis for axis in get_args(Axis)}
POWERS = {"times": 1, "over": -1}
Check = Callable[[str, Any], None]
Place = tuple[str | int, ...]  # a key; or a table, which one of that name (from 0), and a key in it


class MisplacedError(InvalidArgumentError):
    """A mistake, and its place in the plan."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def at(*place: str | int) -> Iterator[None]:
    """Say of a mistake made inside where it is; the innermost place counts."""
    try:
        yield
    except MisplacedError:
        raise
    except BcscError as error:
        raise MisplacedError(place, str(error)) from error


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
        experiment = _experiment(plan, name)
        if check is not None:
            _check_values(plan, check)
        return experiment
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"{where} is not a TOML file: {error}") from error
    except MisplacedError as mistake:
        words = " ".join(str(part + 1) if isinstance(part, int) else part for part in mistake.place)
        raise InvalidArgumentError(f"{where}, line {line_of(text, mistake.place)} ({words}): {mistake}") from mistake


def line_of(text: str, place: Place) -> int:
    """The line of a place in a plan, or where its table begins if the key is not found."""
    table, index, key = str(place[0]), place[1] if len(place) > 2 else 0, str(place[-1])
    start, seen, inside = 1, -1, len(place) == 1
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\[?\s*([\w-]+)\s*\]", line):
            seen += header[1] == table
            inside = header[1] == table and seen == index
            start = number if inside else start
        elif inside and re.match(rf'\s*"?{re.escape(key)}"?\s*=', line):
            return number
        elif len(place) > 1 and re.match(rf"\s*{re.escape(table)}\s*=", line):
            start = number  # an inline table
    return start


def _experiment(plan: Mapping[str, Any], name: str) -> Experiment:
    _check_keys(plan, PLAN_KEYS, ())
    recipe, models, swept = _recipe(plan.get("recipe", {}))
    with at("compared_by"):
        compared_by = AXES[check_choice("compared_by", plan.get("compared_by", "epochs"), AXES)]
    with at("seeds"):
        seeds = tuple(check_at_least("A seed", seed, 0) for seed in plan.get("seeds", (0, 1, 2)))
        _check_distinct("seed", seeds)
    experiment = Experiment(
        name=name,
        title=plan.get("title", name),
        question=plan.get("question", ""),
        source=plan.get("source", ""),
        models=models,
        arms=tuple(Arm(*_labelled("arm", index, table, recipe)) for index, table in enumerate(plan.get("arm", ()))),
        recipe=recipe,
        conditions=tuple(
            Condition(*_labelled("condition", index, {**swept, **table}, recipe))
            for index, table in enumerate(plan.get("condition", [{}]))
        ),
        seeds=seeds,
        compared_by=compared_by,
        numbers=plan.get("numbers"),
    )
    _check_cells(experiment)
    claims = [_claim(index, table, experiment) for index, table in enumerate(plan.get("claim", ()))]
    return replace(experiment, claims=tuple(claims))


def _check_keys(table: Any, known: Mapping[str, type], place: Place) -> None:
    """Refuse what is no table, what it should not hold, and what is of another kind than it should be."""
    if not isinstance(table, dict):
        raise MisplacedError(place, f"{place[0]} must be a table, got {table!r}.")
    for key, value in table.items():
        with at(*place, key):
            check_choice(f"A key of a {place[0] if place else 'plan'}", key, known)
            if not isinstance(value, known[key]):
                raise InvalidArgumentError(f"{key} must be {KINDS_OF_VALUE[known[key]]}, got {value!r}.")


def _check_distinct(what: str, values: Collection[object]) -> None:
    if not values:
        raise InvalidArgumentError(f"There must be at least one {what}.")
    if len(set(values)) < len(values):
        raise InvalidArgumentError(f"Every {what} must be there once, got {', '.join(map(str, values))}.")


def _recipe(table: Mapping[str, Any]) -> tuple[RunSpec, tuple[str, ...], dict[str, Any]]:
    """What all runs share, the networks, and the settings of which every arm goes through several values."""
    settings = _settings(table, ("recipe",), ["seed"])
    models = settings.pop("model", RunSpec().model)
    swept = {name: table[name] for name, value in settings.items() if isinstance(value, tuple)}
    recipe = RunSpec(**{name: value for name, value in settings.items() if name not in swept})
    return recipe, models if isinstance(models, tuple) else (models,), swept


def _labelled(kind: str, index: int, table: Any, recipe: RunSpec) -> tuple[str, dict[str, Any]]:
    """The label and the settings of an arm or a condition."""
    if not isinstance(table, dict):
        raise MisplacedError((kind,), f"{kind} must be a list of tables, as [[{kind}]] writes them.")
    label = table.get("label", "" if kind == "condition" else None)
    with at(kind, index, "label"):
        if not isinstance(label, str):
            raise InvalidArgumentError(f"An arm must have a label, a text, got {label!r}.")
        settings = _settings({n: v for n, v in table.items() if n != "label"}, (kind, index), list(ELSEWHERE))
        names = [*settings, *(["M"] if "blocks" in settings else [])]
        for word in re.findall(r"\{(.*?)\}", label):
            check_choice("What a label names in braces", word, names)
    for name, value in settings.items():
        if isinstance(value, Scaled) and getattr(recipe, name) is None:
            raise MisplacedError((kind, index, name), f"Give {name} in the recipe, of which this one is a multiple.")
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
            found[name] = _value(name, value, place)
    return found


def _value(name: str, value: Any, place: Place) -> Any:
    if isinstance(value, list):
        _check_distinct(f"value of {name}", [repr(item) for item in value])
        return tuple(_value(name, item, place) for item in value)
    if isinstance(value, dict) and name != "optimizer_options":
        (factor, what), *others = value.items() or [("", "")]
        if others or factor not in POWERS or what != "M" or place[0] != "arm":
            raise InvalidArgumentError(
                f'An arm may have {name} = {{ times = "M" }} or {{ over = "M" }}, got {value!r}.'
            )
        return Scaled(POWERS[factor])
    RunSpec(**{"blocks" if name == "M" else name: value})
    return value


def _check_cells(experiment: Experiment) -> None:
    """Every arm and condition must have a label and a folder of its own, and neither may overrule the other."""
    with at("arm"):
        _check_distinct("arm", [label for arm in experiment.arms for label, _ in sweep(arm.label, arm.settings)])
    with at("condition"):
        _check_distinct(
            "condition", [label for each in experiment.conditions for label, _ in sweep(each.label, each.settings)]
        )
    for index, arm in enumerate(experiment.arms):
        both = [name for condition in experiment.conditions for name in condition.settings if name in arm.settings]
        if both:
            raise MisplacedError(
                ("arm", index, both[0]), f"{both[0]} is set by a condition too. Leave one of them out."
            )
    with at("arm"):
        _check_distinct("name of a run (letters and digits of its labels)", [run.name for run in experiment.runs()])


def _check_values(plan: Mapping[str, Any], check: Check) -> None:
    tables: dict[Place, Mapping[str, Any]] = {("recipe",): plan.get("recipe", {})}
    tables |= {(kind, index): table for kind in ("condition", "arm") for index, table in enumerate(plan.get(kind, ()))}
    for place, table in tables.items():
        for name, value in table.items():
            with at(*place, name):
                for item in value if isinstance(value, list) else [value]:
                    check(name, item)


def _claim(index: int, table: Any, experiment: Experiment) -> PlannedClaim:
    """A claim; without a statement of its own it states what it says."""
    place = ("claim", index)
    _check_keys(table, CLAIM_KEYS, place)
    sentences = table.get("says", [])
    with at(*place, "says"):
        sentences = sentences if isinstance(sentences, list) else [sentences]
        _check_distinct("sentence", sentences)
    with at(*place, "periods"):
        wanted = [check_choice("A period", period, PERIODS) for period in table.get("periods", ())]
        periods = [period for period in PERIODS if period in wanted]
    labels = dict.fromkeys(cell.condition for cell in experiment.cells())
    ends = {}
    for key, default in (("from", next(iter(labels))), ("to", next(reversed(labels)))):
        with at(*place, key):
            ends[key] = check_choice("A condition", table.get(key, default), labels)
    with at(*place, "says"):
        sayings = tuple(read_saying(sentence, arm_names(experiment), periods) for sentence in sentences)
        if ends["from"] == ends["to"] and any(saying.kind == "falls" for saying in sayings):
            raise InvalidArgumentError("To fall there must be two conditions: from one to the other.")
    statement = table.get("statement", ", and ".join(sentences) + ".")
    return PlannedClaim(
        table.get("name", as_file_name(f"{experiment.name} {statement}")),
        statement,
        table.get("source", experiment.source),
        tuple(replace(saying, conditions=(ends["from"], ends["to"])) for saying in sayings),
    )


def arm_names(experiment: Experiment) -> list[str]:
    """What an arm can be called in a claim: its label as in the plan, and as in the table."""
    return list(dict.fromkeys([*(arm.label for arm in experiment.arms), *(cell.arm for cell in experiment.cells())]))
