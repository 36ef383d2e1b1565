"""The paper's figures as PNG and PDF: one row per network and condition, one panel per arm."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcsc.catalog.experiments import Cell
from bcsc.errors import MissingExtraError
from bcsc.reports.curves import AXES, Axis, Curves, curves_of
from bcsc.results.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (2.7, 2.2)  # inches
COLOURS = {"train_loss": "tab:blue", "test_loss": "tab:red", "test_accuracy": "tab:green"}
LEGEND = {"train_loss": "training loss and its spread", "test_loss": "test loss", "test_accuracy": "test accuracy"}


def write_figures(study: Study, folder: Path) -> list[Path]:
    """The learning curves of a study against every axis."""
    curves = {cell: found for cell, runs in study.runs.items() if (found := curves_of(runs)) is not None}
    written = []
    for axis in AXES if curves else ():
        figure = draw(study, curves, axis)
        for suffix in ("png", "pdf"):
            written.append(folder / f"{study.name}-{axis.replace('_', '-')}.{suffix}")
            figure.savefig(written[-1], dpi=150)
            figure.set_layout_engine("none")  # it is laid out now, and doing it again is slow
    return written


def draw(study: Study, curves: Mapping[Cell, Curves], axis: Axis) -> "Figure":
    """One figure; the panels of a row share their axes, so that they can be compared."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("Figures need matplotlib: pip install 'bcsc[report]'.") from error

    rows = [list(cells) for _, cells in groupby(study.runs, key=lambda cell: cell.place)]
    width, height = max(map(len, rows)), len(rows)
    figure = Figure(figsize=(PANEL[0] * width + 0.6, PANEL[1] * height + 0.9), layout="constrained")
    panels = figure.subplots(height, width, squeeze=False, sharex="row", sharey="row")
    for cells, line in zip(rows, panels, strict=True):
        right = [panel.twinx() for panel in line]
        for cell, panel, accuracy in zip(cells, line, right, strict=False):
            panel.set_title(f"{cell.arm}\n{cell.place}", fontsize=8)
            if cell in curves:
                _draw_panel(panel, accuracy, curves[cell], axis)
        _finish_row(list(line), right, axis)
    for panel in panels[-1]:
        panel.set_xlabel(AXES[axis], fontsize=8)
    _finish_figure(figure, study)
    return figure


def _draw_panel(losses: "Axes", accuracy: "Axes", curves: Curves, axis: Axis) -> None:
    """Training loss blue with its spread over the mini-batches, test loss red, test accuracy green on the right."""
    positions, quantities = curves.positions[axis], curves.quantities
    style: dict[str, Any] = {"linewidth": 1.2, "marker": "." if len(positions) == 1 else ""}
    train = quantities["train_loss"].mean
    low = [mean - std for mean, std in zip(train, curves.train_loss_std, strict=True)]
    high = [mean + std for mean, std in zip(train, curves.train_loss_std, strict=True)]
    losses.fill_between(positions, low, high, color=COLOURS["train_loss"], alpha=0.25, linewidth=0)
    losses.plot(positions, train, color=COLOURS["train_loss"], **style)
    losses.plot(positions, quantities["test_loss"].mean, color=COLOURS["test_loss"], **style)
    accuracy.plot(positions, quantities["test_accuracy"].mean, color=COLOURS["test_accuracy"], **style)


def _finish_row(losses: "list[Axes]", accuracies: "list[Axes]", axis: Axis) -> None:
    """A log axis of epochs as in the paper, one range of accuracies, labels at the outer edges only."""
    for panel, right in zip(losses, accuracies, strict=True):
        right.sharey(accuracies[0])
        right.tick_params(labelsize=7, labelright=right is accuracies[-1], colors=COLOURS["test_accuracy"])
        panel.tick_params(labelsize=7)
        panel.grid(visible=True, alpha=0.25)
    losses[0].set_xscale("log" if axis == "epochs" else "linear")
    losses[0].set_ylabel("loss", fontsize=8)
    accuracies[-1].set_ylabel("accuracy (%)", fontsize=8, color=COLOURS["test_accuracy"])


def _finish_figure(figure: "Figure", study: Study) -> None:
    from matplotlib.lines import Line2D

    caption = f"{study.title} ({study.caveat})" if study.caveat else study.title
    figure.suptitle(caption, fontsize=9, wrap=True)
    handles = [Line2D([], [], color=COLOURS[name], label=label) for name, label in LEGEND.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
