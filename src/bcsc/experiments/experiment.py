"""Experiment: what a plan says, as data, and the runs that follow from it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bcsc.choices import Period
from bcsc.errors import InvalidArgumentError
from bcsc.experiments.planning.arms import Arm, Condition, Settings, Tuned, Tuning, sweep, variants
from bcsc.experiments.planning.sayings import PlannedClaim
from bcsc.runs.spec import RunSpec

Axis = Literal["epochs", "gradient_evaluations", "seconds"]

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

# An epoch of any other method computes M times the gradients.
METHODS_OF_ONE_PASS = ("sgd", "sbc-one-pass", "one-pass", "skip-update", "magma")

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
    budget: Axis = "epochs"  # what all arms have as much of
    compared_by: Axis = "epochs"  # what curves are first drawn against
    tuning: Tuning | None = None
    claims: tuple[PlannedClaim, ...] = ()
    only_conditions: tuple[str, ...] = ()  # where it is cut down to some: their labels
    only_arms: tuple[str, ...] = ()
    decided: Mapping[Cell, Settings] = field(
        default_factory=dict
    )  # what was chosen, or measured, before the final runs
    whole: "Experiment | None" = None  # what this one was cut down from

    def __post_init__(self) -> None:
        shared = set(self.seeds) & set(self.tuning.seeds if self.tuning else ())
        if shared:
            raise InvalidArgumentError(
                f"The seed {min(shared)} is one of the final runs. Tune with other seeds than {list(self.seeds)}."
            )

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
            f"at {part_of(self.recipe.epochs, whole.recipe.epochs, 'epoch')}{self.budget_words}",
            f"with {part_of(len(self.seeds), len(whole.seeds), 'seed')}",
        ]
        subset = self.recipe.subset if self.recipe.subset == whole.recipe.subset else None
        planned = [f"on the first {subset} training samples"] if subset is not None else []
        return ", ".join([*reach, *planned, *other_cuts(whole, self)])

    @property
    def budget_words(self) -> str:
        """What all arms have as much of, where that is not the epochs."""
        equal = self.budget.replace("_", " ")
        return "" if self.budget == "epochs" else f" of the costliest arm and equal {equal} for all"

    def runs(self) -> list[PlannedRun]:
        """Every run of which all is decided, the first seed of everything first."""
        return [
            PlannedRun(cell, replace(self.recipe, model=cell.model, seed=seed, **settings))
            for seed in self.seeds
            for cell, settings in self.cells().items()
            if not self.undecided(settings)
        ]

    def undecided(self, settings: Settings) -> list[str]:
        """The settings of a cell that have to be chosen, or measured, first."""
        timed = ["epochs"] if self.budget == "seconds" and "epochs" not in settings else []
        return [*timed, *(name for name, value in settings.items() if isinstance(value, Tuned))]

    def cells(self) -> dict[Cell, dict[str, Any]]:
        """Every cell in the order of the table, with its settings of a RunSpec."""
        found = {
            cell: {**shared, **own, **self.decided.get(cell, {})}
            for model in self.models
            for each in self.conditions
            for condition, shared in sweep(each.label, each.settings)
            for arm in self.arms
            for label, blocks, own in variants(arm, self.recipe)
            for cell in [Cell(model, condition, label, blocks)]
        }
        if self.budget == "gradient_evaluations":
            costs = {cell: passes_of(settings, self.recipe) for cell, settings in found.items()}
            epochs = stretched(costs, self.recipe.epochs)
            found = {cell: {**settings, "epochs": epochs[cell]} for cell, settings in found.items()}
        return {
            cell: settings
            for cell, settings in found.items()
            if (not self.only_conditions or cell.condition in self.only_conditions)
            and (not self.only_arms or cell.arm in self.only_arms)
        }

    def arm_labels(self) -> dict[str, str]:
        """From the label of an arm in the table to its label in the plan."""
        return {label: arm.label for arm in self.arms for label, _ in sweep(arm.label, arm.settings)}


def passes_of(settings: Settings, recipe: RunSpec) -> int:
    """How often an epoch computes the gradient of each sample."""
    method, blocks = settings.get("method", recipe.method), settings.get("blocks", recipe.blocks)
    return 1 if method in METHODS_OF_ONE_PASS else blocks


def stretched(costs: Mapping[Cell, float], epochs: int) -> dict[Cell, int]:
    """As many epochs for each cell as cost what ``epochs`` cost at the costliest of its place."""
    most: dict[str, float] = {}
    for cell, cost in costs.items():
        most[cell.place] = max(cost, most.get(cell.place, cost))
    return {cell: max(1, round(epochs * most[cell.place] / cost)) for cell, cost in costs.items()}


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
        f"{small.tuning and small.tuning.validation} samples held out": small.tuning != whole.tuning,
    }
    return [text for text, is_cut in cuts.items() if is_cut]


def part_of(some: int, full: int, noun: str) -> str:
    """``2 of 200 epochs``, or ``200 epochs`` where there are all of them and more."""
    counted = f"{some} of {full}" if some < full else str(some)
    return f"{counted} {noun}{'' if counted == '1' else 's'}"


def as_file_name(words: str) -> str:
    """The words without anything that a file system or a shell might mind."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
