"""RunSpec: everything that decides what a run computes, validated, and its TOML form."""

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from bcsc.choices import (
    GRANULARITIES,
    MASKS,
    PARALLELS,
    PRECISIONS,
    SCHEDULES,
    Granularity,
    Mask,
    Parallel,
    Precision,
    Schedule,
)
from bcsc.errors import InvalidArgumentError, check_at_least, check_choice, in_short

MOST_THREADS = 1024
PAPER_LEARNING_RATE = {"sgd": 0.1, "adagrad": 0.1, "adadelta": 0.1}

CHOICES: Mapping[str, tuple[str, ...]] = {
    "schedule": SCHEDULES,
    "precision": PRECISIONS,
    "parallel": PARALLELS,
    "mask": MASKS,
    "granularity": GRANULARITIES,
}


def described(default: Any, text: str) -> Any:
    """A field with its default and one line of help, which the command line shows."""
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata={"help": text})
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run; the defaults are the paper's recipe (Sect. 5)."""

    data: str = described("cifar10", "the data set (bcsc data list)")
    model: str = described("lenet4", "the network (bcsc models)")
    method: str = described("bcsc", "sgd, bcd, sbc, sbc-one-pass, rbc, bcsc, one-pass, skip-update or magma")
    blocks: int = described(8, "M, the number of parameter blocks; SGD has one")
    epochs: int = described(200, "in the paper's sense: one of BCSC is M passes over the data, one of SGD is one")
    batch_size: int = described(128, "samples per mini-batch")
    optimizer: str = described(
        "sgd", "any optimizer of torch.optim by name, or of an installed package as package.module:Name"
    )
    optimizer_options: dict[str, Any] = described({}, "further keyword arguments of the optimizer")
    lr: float | None = described(None, "0.1 for the paper's optimizers, else the optimizer's own default")
    momentum: float = described(0.9, "for optimizers that have it")
    weight_decay: float = described(5e-4, "for optimizers that have it")
    schedule: Schedule = described(
        "staircase", "staircase (tenfold down at 50 % and 75 % of the epochs), constant, cosine"
    )
    dropout: float = described(0.0, "share of units dropped before the fully connected layers of lenet4")
    outliers: str = described("none", "KIND:RATE or human:FILE:COLUMN, for instance symmetric:0.15")
    mask: Mask = described("update", "what the block masks: update, gradient or all")
    granularity: Granularity = described("element", "what moves together: element, row or tensor")
    seed: int = described(0, "of weights, blocks, shuffles and augmentation")
    device: str = described("cpu", "where to train")
    precision: Precision = described("fp32", "fp32, or bf16 by autocast")
    compile: bool = described(False, "compile the network with torch.compile")
    threads: int | None = described(None, "CPU threads of torch; by default as many as torch takes")
    deterministic: bool = described(False, "refuse operations that torch knows to be nondeterministic")
    parallel: Parallel = described(
        "exact", "under torchrun: split each mini-batch (exact), or several steps at once (blocks)"
    )
    sync_batch_norm: bool = described(False, "under torchrun: BatchNorm over the whole mini-batch; not on CPU")
    subset: int | None = described(None, "train on the first N samples only, for a quick look")
    validation: int | None = described(
        None, "hold out N training samples and measure on them; the test set is then left alone"
    )

    @property
    def learning_rate(self) -> float | None:
        """The rate that was asked for, or the paper's; nothing where the optimizer's own default counts."""
        return self.lr if self.lr is not None else PAPER_LEARNING_RATE.get(self.optimizer.lower())

    def __post_init__(self) -> None:
        for f in fields(self):
            check_type(f.name, getattr(self, f.name), f.type)
        for name, least in (
            ("blocks", 1),
            ("epochs", 1),
            ("batch_size", 1),
            ("seed", 0),
            ("threads", 1),
            ("subset", 1),
            ("validation", 1),
        ):
            if getattr(self, name) is not None:
                check_at_least(name, getattr(self, name), least)
        if self.threads is not None and self.threads > MOST_THREADS:
            raise InvalidArgumentError(f"threads must be at most {MOST_THREADS}, got {self.threads}.")
        for name, limit in (("momentum", 1.0), ("dropout", 1.0), ("weight_decay", 1e30), ("lr", 1e30)):
            value = getattr(self, name)
            if value is not None and not 0 <= value < limit:
                raise InvalidArgumentError(
                    f"{name} must be a number of at least 0 and below {limit:g}, got {in_short(value)}."
                )
        check_optimizer_options(self.optimizer_options)
        for name, allowed in CHOICES.items():
            check_choice(name, getattr(self, name), allowed)


def check_type(name: str, value: object, annotation: Any) -> None:
    """Refuse a value that is not of the annotated type; a whole number will do for a float."""
    parts = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    accepted = [str if get_origin(part) is Literal else get_origin(part) or part for part in parts]
    if float in accepted:
        accepted.append(int)
    if type(value) not in accepted:
        names = " or ".join(kind.__name__ for kind in accepted if kind is not NoneType)
        raise InvalidArgumentError(f"{name} must be of type {names}, got {in_short(value)}.")
    if isinstance(value, str) and not value.isascii() and value != value.encode(errors="replace").decode():
        raise InvalidArgumentError(f"{name} must be text that a file can hold, got {in_short(value)}.")


def check_optimizer_options(options: Mapping[str, Any]) -> None:
    """Refuse what a file cannot hold, and what has a setting of its own."""
    for name in ("lr", "momentum", "weight_decay"):
        if name in options:
            raise InvalidArgumentError(f"{name} is a setting of its own: give {name}, not optimizer_options.")
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        for item in values:
            if not isinstance(item, bool | int | float | str) or (isinstance(item, float) and not math.isfinite(item)):
                raise InvalidArgumentError(
                    f"The optimizer option {name} must be true, false, a finite number, a text or a list of those, "
                    f"got {in_short(value)}."
                )


def spec_to_toml(spec: RunSpec) -> str:
    """One line per setting; what is not set is left out."""
    return "".join(f"{name} = {toml_value(value)}\n" for name, value in asdict(spec).items() if value is not None)


def toml_value(value: object) -> str:
    """A value as TOML writes it: as JSON does, but for tables and the one control character that JSON lets pass.

    By hand, as every run writes one and the core needs torch and numpy alone.
    """
    if isinstance(value, dict):
        entries = ", ".join(f"{toml_value(key)} = {toml_value(item)}" for key, item in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def settings_from_toml(text: str, where: str) -> dict[str, Any]:
    """The settings in a TOML file, all of them known ones; ``where`` names the file in messages."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number of too many digits, and a nest too deep
        raise InvalidArgumentError(f"{where} is not a TOML file: {error}") from error
    check_settings(values, f" in {where}")
    return values


def check_settings(names: Iterable[str], where: str = "") -> None:
    """Refuse what is no setting of a run; ``where`` goes into the message."""
    for name in names:
        check_choice(f"A setting{where}", name, [f.name for f in fields(RunSpec)])


def spec_from_toml(text: str, where: str) -> RunSpec:
    """The run that a TOML file describes."""
    return RunSpec(**settings_from_toml(text, where))


def differences(saved: RunSpec, wanted: RunSpec) -> list[str]:
    """Every setting in which two runs differ, as text."""
    pairs = [(f.name, getattr(saved, f.name), getattr(wanted, f.name)) for f in fields(RunSpec)]
    return [f"{name} was {old!r}, is {new!r}" for name, old, new in pairs if old != new]
