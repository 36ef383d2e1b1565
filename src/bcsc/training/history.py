"""What each epoch measured, and what the paper's tables make of it. Needs no torch: reports read it too."""

from collections.abc import Sequence
from typing import NamedTuple


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


def per_second(count: float, seconds: float) -> float:
    """How many in a second; 0 where the clock has not moved."""
    return count / seconds if seconds > 0 else 0.0


def accuracy_summary(rows: Sequence[EpochRow], epochs: int) -> dict[str, float] | None:
    """Test accuracy as in the paper's tables: averages over halves and all epochs, the final one; and the best."""
    if not rows:
        return None
    accuracies = [row.test_accuracy for row in rows]
    first, last = accuracies[: (epochs + 1) // 2], accuracies[(epochs + 1) // 2 :]
    return {
        "first_half": mean(first),
        "last_half": mean(last or accuracies[-1:]),
        "all": mean(accuracies),
        "final": accuracies[-1],
        "best": max(accuracies),
    }


def mean(values: Sequence[float]) -> float:
    """The average."""
    return sum(values) / len(values)
