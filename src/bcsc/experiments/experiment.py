"""Experiment: what a plan says, as data, and the runs that follow from it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

from bcsc.choices import Period
from bcsc.experiments.sayings import PlannedClaim
from bcsc.runs.spec import RunSpec

Axis = Literal["epochs", "gradient_evaluations", "seconds"]
Settings = Mapping[str, Any]  # of a RunSpec: a value, a tuple of values (a sweep), or Scaled

# What the paper's tables average the test accuracy over.
PERIODS: Mapping[Period, str] = {"first_half": "First half", "last_half": "Last half", "all": "All", "final": "Final"}

# Of the data sets of the package; of any other nothing is known without reading it.
NUM_CLASSES: Mapping[str, int] = {
    "digits": 10,
    "mnist": 10,
    "fashion-mnist": 10,
    "cifar10": 10,
    "cifar100": 100,
    "cifar100-coarse": 20,
}

# The networks as the paper spells them, in the order of its last table.
NETWORKS: Mapping[str, str] = {
    "lenet4": "LeNet4",
    "mobilenet": "MobileNet",
    "shufflenet": "ShuffleNet",
    "vgg19": "VGG19",
    "resnet18": "ResNet18",
    "senet18": "SENet18",
    "denseconv": "DenseConv",
    "resnext29": "ResNeXt29",
    "googlenet": "GoogLeNet",
    "dpn92": "DPN92",
}


@dataclass(frozen=True)
class Scaled:
    """A setting that is the recipe's times a power of M; ``lr = { over = "M" }`` is the rate divided by M."""

    power: int


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


@dataclass(frozen=True)
class Cell:
    """One place of a table: the runs in it differ by their seed alone."""

    model: str
    condition: str
    arm: str
    blocks: int = 1

    @property
    def network(self) -> str:
        """The network as the paper spells it."""
        return NETWORKS.get(self.model, self.model)

    @property
    def place(self) -> str:
        """Where the arm is compared with others: the network, and the condition if there is one."""
        return ", ".join(part for part in (self.network, self.condition) if part)

    @property
    def name(self) -> str:
        """A name for files."""
        return as_file_name(f"{self.model} {self.condition} {self.arm}")


@dataclass(frozen=True)
class PlannedRun:
    """A run of an experiment and the cell it belongs to."""

    cell: Cell
    spec: RunSpec

    @property
    def name(self) -> str:
        """A folder name that tells the run apart from the others of its experiment."""
        return f"{self.cell.name}-seed-{self.spec.seed}"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The runs behind one table or figure: models x conditions x arms x seeds."""

    name: str
    title: str
    question: str
    models: tuple[str, ...]
    arms: tuple[Arm, ...]
    source: str = ""  # where the paper shows it
    recipe: RunSpec = field(default_factory=RunSpec)
    conditions: tuple[Condition, ...] = (Condition(),)
    seeds: tuple[int, ...] = (0, 1, 2)
    compared_by: Axis = "epochs"  # what curves are first drawn against
    numbers: str | None = None  # the paper's, a file in the folder ``paper``
    claims: tuple[PlannedClaim, ...] = ()
    only_conditions: tuple[str, ...] = ()  # where it is cut down to some: their labels
    only_arms: tuple[str, ...] = ()
    whole: "Experiment | None" = None  # what this one was cut down from

    @property
    def blocks(self) -> tuple[int, ...]:
        """Every M of every arm, ascending."""
        return tuple(sorted({count for arm in self.arms for count in arm.numbers_of_blocks}))

    @property
    def note(self) -> str:
        """What a reader must know before comparing with the whole; empty for the whole experiment."""
        cuts = [] if self.whole is None else what_was_cut(self.whole, self)
        return f"cut down: {', '.join(cuts)}" if cuts else ""

    @property
    def scope(self) -> str:
        """How far its verdicts reach: networks, epochs, seeds, and whatever else was cut."""
        whole = self.whole or self
        reach = [
            *(f"in {networks}" for networks in networks_of(whole, self)),
            f"at {part_of(self.recipe.epochs, whole.recipe.epochs, 'epoch')}",
            f"with {part_of(len(self.seeds), len(whole.seeds), 'seed')}",
        ]
        return ", ".join([*reach, *other_cuts(whole, self)])

    def runs(self) -> list[PlannedRun]:
        """Every run, the first seed of everything first."""
        return [
            PlannedRun(cell, replace(self.recipe, model=cell.model, seed=seed, **settings))
            for seed in self.seeds
            for cell, settings in self.cells().items()
        ]

    def cells(self) -> dict[Cell, dict[str, Any]]:
        """Every cell in the order of the table, with its settings of a RunSpec."""
        found = {
            Cell(model, condition, label, blocks): {**shared, **own}
            for model in self.models
            for each in self.conditions
            for condition, shared in sweep(each.label, each.settings)
            for arm in self.arms
            for label, blocks, own in variants(arm, self.recipe)
        }
        return {
            cell: settings
            for cell, settings in found.items()
            if (not self.only_conditions or cell.condition in self.only_conditions)
            and (not self.only_arms or cell.arm in self.only_arms)
        }

    def arm_labels(self) -> dict[str, str]:
        """From the label of an arm in the table to its label in the plan."""
        return {label: arm.label for arm in self.arms for label, _ in sweep(arm.label, arm.settings)}


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
        settings |= {name: getattr(recipe, name) * blocks**value.power for name, value in scaled.items()}
        found.append((label, blocks, settings))
    return found


def what_was_cut(whole: Experiment, small: Experiment) -> list[str]:
    """In words, where ``small`` falls short of ``whole``."""
    epochs, all_epochs, seeds, all_seeds = small.recipe.epochs, whole.recipe.epochs, len(small.seeds), len(whole.seeds)
    cuts = [part_of(epochs, all_epochs, "epoch")] if epochs < all_epochs else []
    cuts += networks_of(whole, small) if set(small.models) != set(whole.models) else []
    cuts += [part_of(seeds, all_seeds, "seed")] if seeds < all_seeds else []
    return cuts + other_cuts(whole, small)


def networks_of(whole: Experiment, small: Experiment) -> list[str]:
    """How many of the networks, and the names of those that are not among them."""
    inside = [model for model in small.models if model in whole.models]
    outside = [NETWORKS.get(model, model) for model in small.models if model not in whole.models]
    words = [part_of(len(inside), len(whole.models), "network")] if inside else []
    names = ", ".join(NETWORKS.get(model, model) for model in whole.models)
    return words + ([f"{' and '.join(outside)} (planned: {names})"] if outside else [])


def other_cuts(whole: Experiment, small: Experiment) -> list[str]:
    """What was cut besides networks, epochs and seeds."""
    numbers = [", ".join(map(str, experiment.blocks)) for experiment in (small, whole)]
    some, full = list(small.cells()), list(whole.cells())
    conditions, all_conditions = len({cell.condition for cell in some}), len({cell.condition for cell in full})
    arms = len({cell.arm for cell in some}), len({cell.arm for cell in replace(small, only_arms=()).cells()})
    cuts = {
        f"M = {numbers[0]} instead of {numbers[1]}": small.blocks != whole.blocks,
        part_of(conditions, all_conditions, "condition"): conditions < all_conditions,
        part_of(*arms, "arm"): arms[0] < arms[1],
        f"only the first {small.recipe.subset} training samples": small.recipe.subset != whole.recipe.subset,
    }
    return [text for text, is_cut in cuts.items() if is_cut]


def part_of(some: int, full: int, noun: str) -> str:
    """``2 of 200 epochs``, or ``200 epochs`` where there are all of them and more."""
    counted = f"{some} of {full}" if some < full else str(some)
    return f"{counted} {noun}{'' if counted == '1' else 's'}"


def as_file_name(words: str) -> str:
    """The words without anything that a file system or a shell might mind."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
