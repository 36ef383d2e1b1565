"""The first run: SGD and BCSC on real handwritten digits with wrong labels, by epoch and at equal compute."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bcsc.catalog.spec import RunSpec
from bcsc.errors import MissingExtraError
from bcsc.running.run import Result

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


def draw_curves(results: Mapping[str, Result], path: Path) -> None:
    """Test accuracy by epoch and by gradient evaluations, side by side."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("The picture needs matplotlib: pip install 'bcsc[report]'") from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, quantity, label in (
        (axes[0], "epoch", "epoch"),
        (axes[1], "gradient_evaluations", "gradient evaluations"),
    ):
        for name, result in results.items():
            xs = [getattr(row, quantity) for row in result.rows]
            axis.plot(xs, [row.test_accuracy for row in result.rows], label=name, marker=".")
        axis.set(xscale="log", xlabel=label)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test accuracy (%)")
    axes[1].legend()
    figure.suptitle("LeNet4 on UCI digits, 15 % of the training labels wrong")
    figure.savefig(path, dpi=120)
