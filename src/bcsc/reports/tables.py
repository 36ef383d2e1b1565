"""The paper's tables: ours over seeds, the paper's, the difference; as Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from bcsc.choices import Period
from bcsc.experiments.catalog import PERIODS, Cell
from bcsc.experiments.study import Study

COST_OF_AN_EPOCH = (
    "The paper compares by epoch; an epoch of SBC, RBC and BCSC computes M times the gradients of an SGD epoch."
)
WHAT_IS_SPREAD = "In tables, ± is the standard deviation over the seeds."
NOTHING = "-"
CSV_COLUMNS = (
    *("experiment", "model", "condition", "arm", "period"),
    *("mean", "spread", "seeds", "paper", "difference", "values", "caveat"),
)


@dataclass(frozen=True)
class Entry:
    """The accuracies of one cell over one period, a value per seed, and the paper's number."""

    cell: Cell
    period: Period
    values: tuple[float, ...]
    paper: float | None

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds, if there are two."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper

    @property
    def ours(self) -> str:
        """The mean and the spread as a table shows them."""
        if self.mean is None:
            return NOTHING
        return f"{self.mean:.2f}" if self.spread is None else f"{self.mean:.2f} ± {self.spread:.2f}"


@dataclass(frozen=True)
class Table:
    """Text in rows and columns; ``groups`` are the headings over the columns, each with its width."""

    title: str
    notes: tuple[str, ...]
    groups: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    num_labels: int  # columns of words on the left
    rows: tuple[tuple[str, ...], ...]


def entries_of(study: Study) -> list[Entry]:
    """Every cell and period of a study."""
    return [
        Entry(cell, period, tuple(run.accuracy(period) for run in runs), study.paper.get((cell, period)))
        for cell, runs in study.finished.items()
        for period in PERIODS
    ]


def table_of(study: Study) -> Table:
    """One row per network, condition and arm; for every period ours and, where it gives one, the paper's."""
    entries = {(entry.cell, entry.period): entry for entry in entries_of(study)}
    compared = {period for _, period in study.paper}
    has_conditions = any(cell.condition for cell in study.runs)
    labels = ("Network", "Condition", "Method") if has_conditions else ("Network", "Method")
    columns: list[str] = [*labels, "Seeds"]
    for period in PERIODS:
        columns += ["ours", "paper", "diff"] if period in compared else ["ours"]
    rows = []
    for cell in study.runs:
        row = [cell.network, cell.condition, cell.arm] if has_conditions else [cell.network, cell.arm]
        row.append(_seeds(study, cell))
        for period in PERIODS:
            row += _numbers(entries[cell, period], with_paper=period in compared)
        rows.append(tuple(row))
    return Table(
        title=f"{study.title}: test accuracy (%)",
        notes=tuple(note for note in (study.caveat, COST_OF_AN_EPOCH, WHAT_IS_SPREAD) if note),
        groups=(("", len(labels) + 1), *((title, 3 if period in compared else 1) for period, title in PERIODS.items())),
        columns=tuple(columns),
        num_labels=len(labels),
        rows=tuple(rows),
    )


def _seeds(study: Study, cell: Cell) -> str:
    diverged = sum(run.summary.state == "diverged" for run in study.runs[cell])
    finished = str(len(study.finished[cell]))
    return f"{finished}, {diverged} diverged" if diverged else finished


def _numbers(entry: Entry, *, with_paper: bool) -> list[str]:
    if not with_paper:
        return [entry.ours]
    paper = NOTHING if entry.paper is None else f"{entry.paper:.2f}"
    return [entry.ours, paper, NOTHING if entry.difference is None else f"{entry.difference:+.2f}"]


def to_markdown(table: Table) -> str:
    """A table as GitHub renders it, with the period in every heading."""
    groups = [title for title, width in table.groups for _ in range(width)]
    heads = [f"{group}: {column}" if group else column for group, column in zip(groups, table.columns, strict=True)]
    marks = ["---" if index < table.num_labels else "---:" for index in range(len(heads))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, marks, *table.rows)]
    notes = "".join(f"\n*{note}*\n" for note in table.notes)
    return f"## {table.title}\n{notes}\n" + "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """A table for booktabs."""
    alignment = "l" * table.num_labels + "r" * (len(table.columns) - table.num_labels)
    headings, rules, start = [], [], 1
    for title, width in table.groups:
        headings.append(rf"\multicolumn{{{width}}}{{c}}{{{_escaped(title)}}}")
        rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if title else []
        start += width
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped('. '.join((table.title, *table.notes)))}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        " & ".join(headings) + r" \\",
        "".join(rules),
        _latex_row(table.columns),
        r"\midrule",
        *map(_latex_row, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _escaped(text: str) -> str:
    for plain, latex in {"%": r"\%", "_": r"\_", "&": r"\&", "±": r"$\pm$"}.items():
        text = text.replace(plain, latex)
    return text


def to_csv(study: Study) -> str:
    """Every number unrounded, one line per cell and period."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for entry in entries_of(study):
        cell, seeds = entry.cell, len(entry.values)
        label = (study.name, cell.model, cell.condition, cell.arm, entry.period)
        numbers = (entry.mean, entry.spread, seeds, entry.paper, entry.difference, " ".join(map(repr, entry.values)))
        writer.writerow((*label, *numbers, study.caveat))
    return out.getvalue()
