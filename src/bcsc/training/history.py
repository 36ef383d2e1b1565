"""What each epoch measured, and what the paper's tables make of it. Needs no torch: reports read it too."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_type_hints

from bcsc.errors import LARGEST, InvalidArgumentError, in_short


class EpochRow(NamedTuple):
    """The measurements of one epoch; the fields of a line of ``metrics.jsonl``."""

    epoch: int  # from 1, as the paper counts
    learning_rate: float
    train_loss: float  # mean over the epoch's mini-batches
    train_loss_std: float  # over the same
    test_loss: float
    test_accuracy: float  # percent
    gradient_evaluations: int  # samples whose gradient has been computed since the run began
    seconds: float  # this epoch, testing included
    images_per_second: float  # in training


MEASURED_BY_THE_CLOCK = ("seconds", "images_per_second")


def row_of(values: object) -> EpochRow:
    """A row from what a file holds, every measurement a number; what later versions may add is left alone."""
    if not isinstance(values, Mapping):
        raise InvalidArgumentError(f"A row must be a table, got {in_short(values)}.")
    return EpochRow._make(number(name, values.get(name), kind) for name, kind in get_type_hints(EpochRow).items())


def number(name: str, value: object, kind: type) -> float:
    """The value, if it is a number of the kind; a whole one will do for a float."""
    if type(value) is int and abs(value) <= LARGEST:
        return value if kind is int else float(value)
    if type(value) is float and kind is float:
        return value
    raise InvalidArgumentError(f"{name} must be a {'whole ' if kind is int else ''}number, got {in_short(value)}.")


def per_second(count: float, seconds: float) -> float:
    """How many in a second; 0 where the clock has not moved."""
    return count / seconds if seconds > 0 else 0.0


def accuracy_summary(rows: Sequence[EpochRow], epochs: int) -> dict[str, float] | None:
    """Test accuracy as in the paper's tables: averages over halves and all epochs, the final one; and the best."""
    if not rows:
        return None
    accuracies = [row.test_accuracy for row in rows]
    return {**over_periods(accuracies, epochs), "best": max(accuracies)}


def over_periods(values: Sequence[float], epochs: int) -> dict[str, float]:
    """The averages of a measurement over halves and all epochs, and the final one."""
    half = (epochs + 1) // 2
    return {
        "first_half": mean(values[:half]),
        "last_half": mean(values[half:] or values[-1:]),
        "all": mean(values),
        "final": values[-1],
    }


def mean(values: Sequence[float]) -> float:
    """The average."""
    return sum(values) / len(values)


def duration(seconds: float) -> str:
    """A time that a person can read: 8 s, 12 min, 3 h 20 min, 2 days 4 h, 49 years."""
    minutes = round(seconds / 60)
    days = minutes // 1440
    if seconds < 100:
        return f"{seconds:.0f} s"
    if minutes < 100:
        return f"{minutes} min"
    if days < 2:
        return f"{minutes // 60} h {minutes % 60:02} min"
    if days < 100:
        return f"{days} days {minutes % 1440 // 60} h"
    return f"{days} days" if days < 2 * 365 else f"{days / 365.25:,.0f} years"
