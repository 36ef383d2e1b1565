"""Figures as PNG, PDF or SVG: the paper's learning curves, a panel per arm, and all arms of a place in one panel.

The same runs give the same bytes: no date is written, and no setting of the reader's own matplotlib is used.
"""

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcsc.experiments.experiment import Axis, Cell
from bcsc.experiments.study import Study
from bcsc.files import write_whole
from bcsc.reports.curves import (
    ARM_COLOURS,
    AXES,
    Curves,
    accuracy_limits,
    by_place,
    curves_of,
    finite,
    log_ticks,
    loss_limits,
    short,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3
# In inches: a panel with the gap to the next, the margins of the figure, and a line of its legend.
PANEL_WIDTH, PANEL_HEIGHT, GAP = 2.4, 1.7, (0.25, 0.85)
LEFT, RIGHT, BOTTOM, TOP, LEGEND_LINE = 0.6, 0.6, 0.6, 0.85, 0.2
LETTERS_PER_INCH = 10  # of the legend, lines and gaps included
LINES: Mapping[str, dict[str, Any]] = {
    "train_loss": {"color": "tab:blue", "label": "training loss and its spread"},
    "test_loss": {"color": "tab:red", "label": "test loss", "linestyle": "--"},
    "test_accuracy": {"color": "tab:green", "label": "test accuracy"},
}
NOTE_STYLE: Mapping[str, Any] = {  # readable over whatever lines are below it
    "fontsize": 7,
    "bbox": {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.5},
}
ACCURACIES = "accuracy"
TITLES = (ACCURACIES, *(axis.replace("_", "-") for axis in AXES))
WITHOUT_DATE: Mapping[str, dict[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}


def write_figures(
    study: Study,
    name: str,
    folder: Path,
    suffixes: Sequence[str],
    titles: Sequence[str] = TITLES,
    *,
    axes: Sequence[Axis] = tuple(AXES),
) -> list[Path]:
    """The learning curves of a study against the axes, and its arms side by side, as NAME-TITLE.SUFFIX."""
    import matplotlib.style

    curves = {cell: found for cell, runs in study.runs.items() if (found := curves_of(runs)) is not None}
    written = []
    with matplotlib.style.context("default"), matplotlib.rc_context({"svg.hashsalt": study.name}):
        for title in titles if curves else ():
            figure = draw(title, study, curves, axes)
            for suffix in suffixes:
                content = io.BytesIO()
                figure.savefig(content, format=suffix, dpi=150, metadata=WITHOUT_DATE[suffix])
                written.append(folder / f"{name}-{title}.{suffix}")
                write_whole(written[-1], content.getvalue())
    return written


def draw(title: str, study: Study, curves: Mapping[Cell, Curves], axes: Sequence[Axis]) -> "Figure":
    """The figure of that title."""
    if title == ACCURACIES:
        return draw_accuracies(study, curves, axes)
    return draw_arms(study, curves, next(axis for axis in AXES if axis.replace("_", "-") == title))


def draw_accuracies(study: Study, curves: Mapping[Cell, Curves], axes: Sequence[Axis] = tuple(AXES)) -> "Figure":
    """A row per network and condition: the test accuracy of all arms, against each of the axes."""
    places = by_place(curves)
    arms = list(dict.fromkeys(cell.arm for cell in study.runs))
    styles: dict[str, dict[str, Any]] = {
        arm: {"color": ARM_COLOURS[i % len(ARM_COLOURS)], "label": arm} for i, arm in enumerate(arms)
    }
    figure, panels = _grid(study, len(places), len(axes), list(styles.values()))
    for (place, cells), line in zip(places.items(), panels, strict=True):
        shown = {cell: curves[cell].quantities["test_accuracy"] for cell in cells}
        for axis, panel in zip(axes, line, strict=True):
            for cell, curve in shown.items():
                positions = curves[cell].positions[axis]
                panel.fill_between(positions, curve.low, curve.high, alpha=0.2, linewidth=0, **styles[cell.arm])
                panel.plot(positions, curve.mean, **_line_style(positions), **styles[cell.arm])
            _finish_positions(panel, [curves[cell] for cell in cells], axis)
            _finish_accuracies(panel, [curve.mean for curve in shown.values()])
            _note_below(panel, {f"{cell.arm}: ": curve.mean for cell, curve in shown.items()})
            panel.tick_params(labelleft=panel is line[0])
        line[0].set_title(place, fontsize=8)
        line[0].set_ylabel("test accuracy (%)", fontsize=8)
    return figure


def draw_arms(study: Study, curves: Mapping[Cell, Curves], axis: Axis) -> "Figure":
    """A panel per arm, in rows of three; those of a network and condition have the same axes, to be compared."""
    places = by_place(study.runs).values()
    rows = [cells[start : start + COLUMNS] for cells in places for start in range(0, len(cells), COLUMNS)]
    figure, panels = _grid(study, len(rows), max(map(len, rows)), list(LINES.values()))
    for cells, line in zip(rows, panels, strict=True):
        place = [curves[cell] for cell in curves if cell.place == cells[0].place]
        for panel in line[len(cells) :]:
            panel.remove()
        for cell, panel in zip(cells, line, strict=False):
            panel.set_title(f"{cell.arm}\n{cell.place}", fontsize=8)
            accuracy = panel.twinx()
            if place:
                _finish_arm(panel, accuracy, place, axis)
            if cell in curves:
                _draw_arm(panel, accuracy, curves[cell], axis)
            panel.tick_params(labelleft=cell is cells[0])
            accuracy.tick_params(labelright=cell is cells[-1])
        line[0].set_ylabel("loss", fontsize=8)
        accuracy.set_ylabel("accuracy (%)", fontsize=8, color=LINES["test_accuracy"]["color"])
    return figure


def _grid(
    study: Study, rows: int, columns: int, legend: "Sequence[dict[str, Any]]"
) -> "tuple[Figure, list[list[Axes]]]":
    """A figure with its title, its panels and what its lines mean."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width = LEFT + columns * PANEL_WIDTH + (columns - 1) * GAP[0] + RIGHT
    longest = max(len(style["label"]) for style in legend)
    legend_columns = next((number for number in (3, 2) if longest * number <= LETTERS_PER_INCH * width), 1)
    bottom = BOTTOM + LEGEND_LINE * math.ceil(len(legend) / legend_columns)
    height = TOP + rows * PANEL_HEIGHT + (rows - 1) * GAP[1] + bottom
    figure = Figure(figsize=(width, height))
    edges = {"left": LEFT / width, "right": 1 - RIGHT / width, "bottom": bottom / height, "top": 1 - TOP / height}
    gaps = {"wspace": GAP[0] / PANEL_WIDTH, "hspace": GAP[1] / PANEL_HEIGHT}
    caption = f"{study.title} ({study.caveat})" if study.caveat else study.title
    figure.suptitle(caption, fontsize=9, wrap=True, y=1 - 0.12 / height, verticalalignment="top")
    handles = [Line2D([], [], **style) for style in legend]
    figure.legend(handles=handles, loc="lower center", ncols=legend_columns, fontsize=8, frameon=False)
    return figure, [list(line) for line in figure.subplots(rows, columns, squeeze=False, gridspec_kw={**edges, **gaps})]


def _line_style(positions: Sequence[float]) -> dict[str, Any]:
    return {"linewidth": 1.2, "marker": "." if len(positions) == 1 else ""}


def _draw_arm(losses: "Axes", accuracy: "Axes", curves: Curves, axis: Axis) -> None:
    """Training loss blue with its spread over the mini-batches, test loss red, test accuracy green on the right."""
    positions, spread = curves.positions[axis], curves.train_loss_spread
    losses.fill_between(positions, spread.low, spread.high, color=LINES["train_loss"]["color"], alpha=0.25, linewidth=0)
    for name, curve in curves.quantities.items():
        panel = accuracy if name == "test_accuracy" else losses
        panel.plot(positions, curve.mean, **_line_style(positions), **LINES[name])
    highest = max(finite([*curves.quantities["train_loss"].mean, *curves.quantities["test_loss"].mean]), default=0.0)
    if highest > losses.get_ylim()[1]:
        losses.text(0.03, 0.97, f"loss up to {highest:.2g}", va="top", transform=losses.transAxes, **NOTE_STYLE)
    _note_below(accuracy, {"accuracy ": curves.quantities["test_accuracy"].mean})


def _finish_arm(losses: "Axes", accuracy: "Axes", place: Sequence[Curves], axis: Axis) -> None:
    """The axes of a panel: those that suit all arms of its place."""
    _finish_positions(losses, place, axis)
    _finish_accuracies(accuracy, [curves.quantities["test_accuracy"].mean for curves in place])
    accuracy.tick_params(colors=LINES["test_accuracy"]["color"])
    limits = loss_limits([curves.quantities[name].mean for curves in place for name in ("train_loss", "test_loss")])
    if limits is not None:
        _scale(losses, "y", (limits[0] / 1.15, limits[1]))  # room for the spread below the lowest


def _finish_positions(panel: "Axes", place: Sequence[Curves], axis: Axis) -> None:
    """A log axis as in the paper: an epoch of BCSC costs M of SGD, and both are to be seen."""
    panel.grid(visible=True, alpha=0.25)
    panel.tick_params(labelsize=7)
    panel.set_xlabel(AXES[axis], fontsize=8)
    positions = [position for curves in place for position in curves.positions[axis] if position > 0]
    if positions:
        _scale(panel, "x", (min(positions), max(positions)))


def _finish_accuracies(panel: "Axes", lines: Sequence[Sequence[float]]) -> None:
    from matplotlib.ticker import MaxNLocator

    limits = accuracy_limits(lines)
    if limits is not None:
        margin = 0.06 * (limits[1] - limits[0]) or 1.0
        panel.set_ylim(limits[0] - margin, limits[1] + margin)
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.tick_params(labelsize=7)


def _note_below(panel: "Axes", lines: Mapping[str, Sequence[float]]) -> None:
    """Name what lies below the axis."""
    lowest = {name: min(finite(line), default=math.inf) for name, line in lines.items()}
    notes = [f"{name}down to {low:.3g}" for name, low in lowest.items() if low < panel.get_ylim()[0]]
    if notes:
        panel.text(0.03, 0.03, "\n".join(notes), va="bottom", transform=panel.transAxes, **NOTE_STYLE)


def _scale(panel: "Axes", direction: str, limits: tuple[float, float]) -> None:
    """A log axis a little wider than ``limits``, with numbers at a few round places."""
    margin = (limits[1] / limits[0]) ** 0.04 if limits[1] > limits[0] else 1.2
    low, high = limits[0] / margin, limits[1] * margin
    ticks = log_ticks(low, high)
    panel.set(**{f"{direction}scale": "log", f"{direction}lim": (low, high)})
    panel.set(**{f"{direction}ticks": ticks, f"{direction}ticklabels": [short(tick) for tick in ticks]})
    getattr(panel, f"{direction}axis").set_ticks([], minor=True)
