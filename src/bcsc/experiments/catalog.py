"""Every experiment of the paper and one of ours, as data. Adding one is one literal in ``EXPERIMENTS``."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from typing import Any, Literal

from bcsc.choices import Period
from bcsc.errors import InvalidArgumentError, check_at_least, check_choice
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
class Arm:
    """One of the things an experiment compares: a column of its table, a panel of its figure.

    A label with ``{M}`` stands once for every number of blocks of the experiment. ``powers`` names the settings that
    go with a power of M: ``{"lr": -1}`` is the recipe's rate divided by M.
    """

    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    powers: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_per_blocks(self) -> bool:
        return "{M}" in self.label


@dataclass(frozen=True)
class Condition:
    """Something every arm goes through, such as a share of outliers."""

    label: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


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


@dataclass(frozen=True)
class PlannedRun:
    """A run of an experiment and the cell it belongs to."""

    cell: Cell
    spec: RunSpec

    @property
    def name(self) -> str:
        """A folder name that tells the run apart from the others of its experiment."""
        words = f"{self.cell.model} {self.cell.condition} {self.cell.arm} seed {self.spec.seed}"
        return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The runs behind one table or figure: models x conditions x arms x seeds."""

    name: str
    title: str
    question: str
    source: str  # where the paper shows it
    models: tuple[str, ...]
    arms: tuple[Arm, ...]
    blocks: tuple[int, ...]
    recipe: RunSpec = field(default_factory=RunSpec)
    conditions: tuple[Condition, ...] = (Condition(),)
    seeds: tuple[int, ...] = (0, 1, 2)
    compared_by: Axis = "epochs"  # what curves are first drawn against
    numbers: str | None = None  # the paper's, a file beside this one
    whole: "Experiment | None" = None  # what this one was cut down from

    @property
    def note(self) -> str:
        """What a reader must know before comparing with the paper; empty for the whole experiment."""
        cuts = [] if self.whole is None else what_was_cut(self.whole, self)
        return f"cut down: {', '.join(cuts)}" if cuts else ""

    @property
    def scope(self) -> str:
        """How far its verdicts reach: networks, epochs, seeds, and whatever else was cut."""
        whole = self.whole or self
        reach = [
            f"in {part_of(len(self.models), len(whole.models), 'network')}",
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
        return {
            Cell(model, condition.label, label, blocks): {**condition.settings, **settings}
            for model in self.models
            for condition in self.conditions
            for arm in self.arms
            for label, blocks, settings in expand(arm, self.blocks, self.recipe)
        }


def expand(arm: Arm, blocks: Sequence[int], recipe: RunSpec) -> list[tuple[str, int, dict[str, Any]]]:
    """The label, M and settings of an arm, once for every M if it depends on it."""
    if not arm.is_per_blocks:
        return [(arm.label, 1, {"blocks": 1, **arm.settings})]
    base = {**asdict(recipe), **arm.settings}
    return [
        (
            arm.label.format(M=count),
            count,
            {
                "blocks": count,
                **arm.settings,
                **{name: base[name] * count**power for name, power in arm.powers.items()},
            },
        )
        for count in blocks
    ]


def cut_down(
    experiment: Experiment,
    *,
    epochs: int | None = None,
    models: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
    subset: int | None = None,
) -> Experiment:
    """A smaller version of an experiment, which says what it leaves out."""
    full = experiment.recipe.epochs
    if epochs is not None and check_at_least("epochs", epochs, 1) > full:
        raise InvalidArgumentError(f"epochs must be at most the {full} of {experiment.name}, got {epochs}.")
    for model in models or ():
        check_choice(f"A network of {experiment.name}", model, experiment.models)
    for count in blocks or ():
        check_at_least("blocks (one block is SGD, which is there anyway)", count, 2)
    small = replace(
        experiment,
        models=tuple(model for model in experiment.models if model in models) if models else experiment.models,
        seeds=tuple(dict.fromkeys(seeds)) if seeds else experiment.seeds,
        blocks=tuple(sorted(set(blocks))) if blocks else experiment.blocks,
        recipe=replace(
            experiment.recipe,
            epochs=full if epochs is None else epochs,
            subset=experiment.recipe.subset if subset is None else subset,
        ),
    )
    return experiment if small == experiment else replace(small, whole=experiment.whole or experiment)


def what_was_cut(whole: Experiment, small: Experiment) -> list[str]:
    """In words, where ``small`` falls short of ``whole``."""
    counts = {
        "epoch": (small.recipe.epochs, whole.recipe.epochs),
        "network": (len(small.models), len(whole.models)),
        "seed": (len(small.seeds), len(whole.seeds)),
    }
    cuts = [part_of(some, full, noun) for noun, (some, full) in counts.items() if some < full]
    return cuts + other_cuts(whole, small)


def other_cuts(whole: Experiment, small: Experiment) -> list[str]:
    """What was cut besides networks, epochs and seeds."""
    numbers = [", ".join(map(str, experiment.blocks)) for experiment in (small, whole)]
    cuts = {
        f"M = {numbers[0]} instead of {numbers[1]}": small.blocks != whole.blocks,
        f"only the first {small.recipe.subset} training samples": small.recipe.subset != whole.recipe.subset,
    }
    return [text for text, is_cut in cuts.items() if is_cut]


def part_of(some: int, full: int, noun: str) -> str:
    """``2 of 200 epochs``, or ``200 epochs`` where there are all of them and more."""
    counted = f"{some} of {full}" if some < full else str(some)
    return f"{counted} {noun}{'' if counted == '1' else 's'}"


def paper_numbers(experiment: Experiment) -> dict[tuple[Cell, Period], float]:
    """The paper's test accuracies, in percent, by cell and period."""
    if experiment.numbers is None:
        return {}
    text = resources.files("bcsc.experiments").joinpath("paper", experiment.numbers).read_text()
    cells = {(cell.model, cell.condition, cell.arm): cell for cell in experiment.cells()}
    table = {}
    for row in csv.DictReader(text.splitlines()):
        cell = cells.get((row["model"], row["condition"], row["arm"]))
        period = next(period for period in PERIODS if period == row["period"])
        if cell is not None:
            table[cell, period] = float(row["accuracy"])
    return table


SGD = Arm("SGD", {"method": "sgd"})
BCSC = Arm("BCSC M={M}", {"method": "bcsc"})
SBC = Arm("SBC M={M}", {"method": "sbc"})
RBC = Arm("RBC M={M}", {"method": "rbc"})
ADAGRAD = Arm("AdaGrad", {"method": "sgd", "optimizer": "adagrad"})
ADADELTA = Arm("AdaDelta", {"method": "sgd", "optimizer": "adadelta"})
RATES = {"5 %": 0.05, "10 %": 0.10, "15 %": 0.15}
WRONG_LABELS = Condition("15 % wrong labels", {"outliers": "symmetric:0.15"})

_ALL = (
    Experiment(
        name="blocks",
        title="The number of blocks",
        question="Does the test accuracy rise with the number of blocks M, at a constant learning rate?",
        source="Figure: effect of the number of parameter blocks M",
        models=("lenet4", "vgg19", "resnet18"),
        arms=(SGD, BCSC),
        blocks=(2, 4, 8, 16),
        recipe=RunSpec(schedule="constant"),
    ),
    Experiment(
        name="outliers",
        title="Training outliers",
        question="Does BCSC keep its accuracy when training labels are wrong, while SGD loses it?",
        source="Table: test accuracy with varying degree of outliers",
        models=("lenet4",),
        conditions=(
            Condition("no outliers"),
            *(Condition(f"{share} outliers", {"outliers": f"symmetric:{rate}"}) for share, rate in RATES.items()),
        ),
        arms=(SGD, BCSC),
        blocks=(2, 4, 8),
        numbers="outliers.csv",
    ),
    Experiment(
        name="adagrad",
        title="Inside AdaGrad",
        question="Does the gain of BCSC persist when AdaGrad sets the learning rates?",
        source="Figure: comparison of BCSC with SGD when using AdaGrad",
        models=("vgg19", "resnet18"),
        arms=(
            Arm("AdaGrad + SGD", {"method": "sgd", "optimizer": "adagrad"}),
            Arm("AdaGrad + BCSC M={M}", {"method": "bcsc", "optimizer": "adagrad"}),
        ),
        blocks=(8,),
    ),
    Experiment(
        name="dropout",
        title="Together with dropout",
        question="Does the gain of BCSC persist when dropout regularises too?",
        source="Table: test accuracy with varying degree of dropout",
        models=("lenet4",),
        conditions=(
            Condition("no dropout"),
            *(Condition(f"{share} dropout", {"dropout": rate}) for share, rate in RATES.items()),
        ),
        arms=(SGD, BCSC),
        blocks=(2, 4, 8),
        recipe=RunSpec(data="mnist"),
        numbers="dropout.csv",
    ),
    Experiment(
        name="cifar10",
        title="Six methods on CIFAR-10",
        question="Is BCSC better than AdaGrad, AdaDelta, SGD, SBC and RBC?",
        source="Table: test accuracy for Cifar10",
        models=("lenet4", "vgg19", "resnet18"),
        arms=(ADAGRAD, ADADELTA, SGD, SBC, RBC, BCSC),
        blocks=(8,),
        numbers="cifar10.csv",
    ),
    Experiment(
        name="cifar10-deep",
        title="Deep networks on CIFAR-10",
        question="Is BCSC better than SGD in deeper networks too?",
        source="Table: test accuracy of deep models for Cifar10",
        models=("googlenet", "dpn92"),
        arms=(SGD, BCSC),
        blocks=(8,),
        numbers="cifar10-deep.csv",
    ),
    Experiment(
        name="cifar100",
        title="Ten networks on CIFAR-100",
        question="Is BCSC better than SGD in every network, with as few as two blocks?",
        source="Table: test accuracy for Cifar100",
        models=tuple(NETWORKS),
        arms=(SGD, BCSC),
        blocks=(2,),
        recipe=RunSpec(data="cifar100"),
        numbers="cifar100.csv",
    ),
    Experiment(
        name="compute",
        title="Equal gradient evaluations",
        question="What is left of the gain when SGD may compute as many gradients as BCSC?",
        source="ours; the paper compares by epoch",
        models=("lenet4",),
        conditions=(Condition("clean"), WRONG_LABELS),
        arms=(
            BCSC,
            Arm("SGD, rate/{M}, {M}x epochs", {"method": "sgd", "blocks": 1}, {"epochs": 1, "lr": -1}),
            Arm("SGD, {M}x epochs", {"method": "sgd", "blocks": 1}, {"epochs": 1}),
            Arm("SGD, {M}x batch, {M}x epochs", {"method": "sgd", "blocks": 1}, {"epochs": 1, "batch_size": 1}),
        ),
        blocks=(8,),
        recipe=RunSpec(lr=0.1),
        compared_by="gradient_evaluations",
    ),
)
EXPERIMENTS: Mapping[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
