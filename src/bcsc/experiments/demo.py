"""The first run: SGD and BCSC on real handwritten digits with wrong labels, by epoch and at equal compute."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bcsc.runs.run import Result
from bcsc.runs.spec import RunSpec

EPOCHS, BLOCKS = 12, 8
# One thread: a network this small gains little from a second, and loses much where the cores are busy.
SGD = RunSpec(data="digits", method="sgd", outliers="symmetric:0.15", epochs=EPOCHS, threads=1)
RUNS: Mapping[str, RunSpec] = {
    "SGD": SGD,
    "BCSC": replace(SGD, method="bcsc", blocks=BLOCKS),
    "SGD, equal compute": replace(SGD, lr=0.1 / BLOCKS, epochs=BLOCKS * EPOCHS),
}


def table(results: Mapping[str, Result]) -> list[list[str]]:
    """A header and a row per run: accuracy by epoch as in the paper, and what it cost."""
    rows = [["", "epochs", "gradient evaluations", "first half", "last half", "final accuracy"]]
    for name, result in results.items():
        accuracy, evaluations = result.summary["test_accuracy"], result.summary["gradient_evaluations"]
        percentages = [f"{accuracy[period]:.2f} %" for period in ("first_half", "last_half", "final")]
        rows.append([name, str(result.summary["epochs"]), f"{evaluations:,}", *percentages])
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The table as text: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
