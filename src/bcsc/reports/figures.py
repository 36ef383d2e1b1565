"""The paper's figures as PNG and PDF: one row per network and condition, one panel per arm."""

import io
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcsc.experiments.catalog import Axis, Cell
from bcsc.experiments.study import Study
from bcsc.files import write_whole
from bcsc.reports.curves import AXES, Curves, curves_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In inches: a panel with the gap to the next, and the margins of the figure.
PANEL_WIDTH, PANEL_HEIGHT, GAP = 2.4, 1.7, (0.25, 0.75)
LEFT, RIGHT, BOTTOM, TOP = 0.6, 0.6, 0.85, 0.85
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
            content = io.BytesIO()
            figure.savefig(content, format=suffix, dpi=150)
            write_whole(written[-1], content.getvalue())
    return written


def draw(study: Study, curves: Mapping[Cell, Curves], axis: Axis) -> "Figure":
    """One figure; the panels of a row share their axes, so that they can be compared."""
    from matplotlib.figure import Figure

    rows = [list(cells) for _, cells in groupby(study.runs, key=lambda cell: cell.place)]
    width, height = max(map(len, rows)), len(rows)
    figure = Figure(figsize=_size(width, height))
    panels = figure.subplots(height, width, squeeze=False, sharex="row", sharey="row", gridspec_kw=_margins(figure))
    for cells, line in zip(rows, panels, strict=True):
        right = [panel.twinx() for panel in line]
        for accuracy in right[1:]:
            accuracy.sharey(right[0])
        for cell, panel, accuracy in zip(cells, line, right, strict=False):
            panel.set_title(f"{cell.arm}\n{cell.place}", fontsize=8)
            if cell in curves:
                _draw_panel(panel, accuracy, curves[cell], axis)
        _finish_row(list(line), right, axis)
    for panel in panels[-1]:
        panel.set_xlabel(AXES[axis], fontsize=8)
    _finish_figure(figure, study)
    return figure


def _size(columns: int, rows: int) -> tuple[float, float]:
    inner_width = columns * PANEL_WIDTH + (columns - 1) * GAP[0]
    inner_height = rows * PANEL_HEIGHT + (rows - 1) * GAP[1]
    return LEFT + inner_width + RIGHT, TOP + inner_height + BOTTOM


def _margins(figure: "Figure") -> dict[str, float]:
    width, height = figure.get_size_inches()
    edges = {"left": LEFT / width, "right": 1 - RIGHT / width, "bottom": BOTTOM / height, "top": 1 - TOP / height}
    return {**edges, "wspace": GAP[0] / PANEL_WIDTH, "hspace": GAP[1] / PANEL_HEIGHT}


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
    """A log axis of epochs as in the paper, labels at the outer edges only."""
    from matplotlib.ticker import EngFormatter

    for panel, right in zip(losses, accuracies, strict=True):
        right.tick_params(labelsize=7, labelright=right is accuracies[-1], colors=COLOURS["test_accuracy"])
        panel.tick_params(labelsize=7)
        panel.grid(visible=True, alpha=0.25)
        if axis == "epochs":
            panel.set_xscale("log")
        else:
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    losses[0].set_ylabel("loss", fontsize=8)
    accuracies[-1].set_ylabel("accuracy (%)", fontsize=8, color=COLOURS["test_accuracy"])


def _finish_figure(figure: "Figure", study: Study) -> None:
    from matplotlib.lines import Line2D

    caption = f"{study.title} ({study.caveat})" if study.caveat else study.title
    height = figure.get_size_inches()[1]
    figure.suptitle(caption, fontsize=9, wrap=True, y=1 - 0.12 / height, verticalalignment="top")
    handles = [Line2D([], [], color=COLOURS[name], label=label) for name, label in LEGEND.items()]
    figure.legend(handles=handles, loc="lower center", ncols=3, fontsize=8, frameon=False)
