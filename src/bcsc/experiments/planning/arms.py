"""Arms and conditions, and what their settings may be besides a value: sweeps, multiples, and what is tuned."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from bcsc.errors import InvalidArgumentError, check_at_least
from bcsc.runs.spec import RunSpec

# What makes of runs other runs, instead of better ones.
NOT_TUNED = ("M", "blocks", "data", "model", "method", "subset", "outliers", "threads", "device")

Settings = Mapping[str, Any]  # of a RunSpec: a value, a tuple of values (a sweep), Scaled or Tuned


@dataclass(frozen=True)
class Scaled:
    """A setting that is the recipe's times a power of M; ``lr = { over = "M" }`` is the rate divided by M."""

    power: int

    def of(self, name: str, value: Any, blocks: int) -> Any:
        """The multiple of a value, which for whole numbers must be one, too."""
        if type(value) not in (int, float):
            raise InvalidArgumentError(f"{name} is {value!r} in the recipe, of which there are no multiples.")
        if RunSpec.__annotations__[name] not in (int, int | None):
            return value * blocks**self.power
        whole, rest = divmod(value * blocks ** max(self.power, 0), blocks ** max(-self.power, 0))
        if rest:
            raise InvalidArgumentError(f"{name} is {value} in the recipe, which M = {blocks} does not divide.")
        return whole


@dataclass(frozen=True)
class Tuned:
    """A setting that is chosen on held-out samples: one of ``values``, or a number between two, found in trials."""

    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    trials: int = 0


@dataclass(frozen=True)
class Tuning:
    """How settings are chosen: the number of training samples held out, and seeds that the final runs do not have."""

    validation: int
    seeds: tuple[int, ...] = (1000,)


@dataclass(frozen=True)
class Arm:
    """One of the things an experiment compares: a column of its table, a panel of its figure.

    A sweep makes several of it. ``{M}``, or the name of a setting, in the label stands for its value; a swept setting
    that the label does not name is added to it. M is the number of blocks; an arm without blocks may give the M of the
    one that it is compared with.
    """

    label: str
    settings: Settings = field(default_factory=dict)

    @property
    def numbers_of_blocks(self) -> tuple[int, ...]:
        """Every M of a sweep."""
        given = self.settings.get("M", self.settings.get("blocks", ()))
        return given if isinstance(given, tuple) else (given,)


@dataclass(frozen=True)
class Condition:
    """Something every arm goes through, such as a share of outliers."""

    label: str = ""
    settings: Settings = field(default_factory=dict)


def sweep(label: str, settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    """Every combination of the values of the settings that have several, each with a label of its own."""
    varying = {name: values for name, values in settings.items() if isinstance(values, tuple)}
    several = [name for name, values in varying.items() if len(values) > 1]
    combinations = [dict(zip(varying, values, strict=True)) for values in product(*varying.values())]
    return [(labelled(label, {**settings, **chosen}, several), {**settings, **chosen}) for chosen in combinations]


def labelled(label: str, settings: Settings, varying: Iterable[str]) -> str:
    """The label with its values filled in, and with those that vary and that it does not name."""
    words = {"M": settings.get("blocks"), **settings}
    named = set(re.findall(r"\{(\w+)\}", label)) | ({"blocks"} if "{M}" in label else set())
    for name in named & set(words):
        label = label.replace(f"{{{name}}}", str(words[name]))
    return ", ".join(part for part in (label, *(f"{n}={settings[n]}" for n in varying if n not in named)) if part)


def variants(arm: Arm, recipe: RunSpec) -> list[tuple[str, int, dict[str, Any]]]:
    """The label, M and settings of every combination of an arm."""
    found = []
    for label, settings in sweep(arm.label, arm.settings):
        is_plain = settings.get("method", recipe.method) == "sgd"
        blocks = settings.pop("M", None) or settings.get("blocks") or (1 if is_plain else recipe.blocks)
        settings["blocks"] = 1 if is_plain else settings.get("blocks", blocks)
        scaled = {name: value for name, value in settings.items() if isinstance(value, Scaled)}
        settings |= {name: value.of(name, getattr(recipe, name), blocks) for name, value in scaled.items()}
        found.append((label, blocks, settings))
    return found


def read_setting(name: str, value: Any, *, in_arm: bool, in_recipe: bool) -> Any:
    """A setting as a plan has it: a value, a list, or a table that says how it is found; each value is checked."""
    if isinstance(value, list):
        check_distinct(f"value of {name}", [repr(item) for item in value])
        return tuple(read_setting(name, item, in_arm=False, in_recipe=False) for item in value)
    if not isinstance(value, dict) or name == "optimizer_options":
        RunSpec(**{"blocks" if name == "M" else name: value})
        return value
    if list(value) == ["tune"] and (in_arm or in_recipe):
        if name in NOT_TUNED:
            raise InvalidArgumentError(f"{name} is not tuned: its values are runs to compare. Give them as a list.")
        return _read_tuned(name, value["tune"])
    if len(value) == 1 and in_arm and value.get("times", value.get("over")) == "M" and name not in ("M", "blocks"):
        return Scaled(1 if "times" in value else -1)
    raise InvalidArgumentError(
        f'{name} may be a value or a list; in an arm or the recipe {{ tune = [...] }}, and in an arm {{ times = "M" }} '
        f'or {{ over = "M" }}; got {value!r}.'
    )


def _read_tuned(name: str, how: Any) -> Tuned:
    """A list to choose from, or a range of numbers to search."""
    if isinstance(how, list):
        check_distinct(f"value of {name} to choose from", [repr(item) for item in how])
        for item in how:
            RunSpec(**{name: item})
        return Tuned(tuple(how))
    if not isinstance(how, dict) or set(how) != {"low", "high", "trials"}:
        raise InvalidArgumentError(
            f"{name} is tuned over a list, or over {{ low = 0.001, high = 1.0, trials = 8 }}, got {how!r}."
        )
    for end in ("low", "high"):
        RunSpec(**{name: how[end]})
    if not isinstance(how["high"], float) or not isinstance(how["low"], float) or not 0 < how["low"] < how["high"]:
        raise InvalidArgumentError(
            f"{name} is searched from a low above 0 to a high above it, both with a decimal point."
        )
    return Tuned(low=how["low"], high=how["high"], trials=check_at_least("trials", how["trials"], 2))


def check_multiple(name: str, scaled: Scaled, arm: Arm, recipe: RunSpec) -> None:
    """The recipe must have what an arm has a multiple of, and the multiple must be there for every M of the arm."""
    if getattr(recipe, name) is None:
        raise InvalidArgumentError(f"Give {name} in the recipe, of which this one is a multiple.")
    if arm.settings.get("method", recipe.method) == "sgd" and not arm.numbers_of_blocks:
        raise InvalidArgumentError("SGD has no blocks. Give the M it is compared with in this arm: M = 8.")
    for number in arm.numbers_of_blocks or (recipe.blocks,):
        scaled.of(name, getattr(recipe, name), number)


def check_blocks(arm: Arm, recipe: RunSpec) -> None:
    """Refuse blocks that would be trained under another M, or not at all."""
    why = {
        "SGD has no blocks": arm.settings.get("method", recipe.method) == "sgd",
        "This arm has M, too": "M" in arm.settings,
    }
    for words, is_so in why.items():
        if is_so and "blocks" in arm.settings:
            raise InvalidArgumentError(f"{words}. Leave blocks out: M says with which arm this one is compared.")


def check_distinct(what: str, values: Collection[object]) -> None:
    """Refuse an empty list, and one that has something twice."""
    if not values:
        raise InvalidArgumentError(f"There must be at least one {what}.")
    if len(set(map(repr, values))) < len(values):  # by their words, as a file may hold what cannot be hashed
        raise InvalidArgumentError(f"Every {what} must be there once, got {', '.join(map(str, values))}.")
