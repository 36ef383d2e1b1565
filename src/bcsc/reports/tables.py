"""The paper's tables: ours over seeds, the paper's, the difference; as Markdown, CSV and LaTeX."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean, stdev
from typing import Literal

from bcsc.choices import Period
from bcsc.experiments.experiment import PERIODS, Axis, Cell
from bcsc.experiments.study import Study

COST_OF_AN_EPOCH = (
    "The paper compares by epoch; an epoch of SBC, RBC and BCSC computes M times the gradients of an SGD epoch."
)
# What a reader must know of a comparison, by what all methods had as much of.
ABOUT_THE_BUDGET: Mapping[Axis, str] = {
    "epochs": COST_OF_AN_EPOCH,
    "gradient_evaluations": "All methods had equal gradient evaluations.",
    "seconds": "All methods had equal time on one machine.",
}
WHAT_IS_SPREAD = "Beside an accuracy, ± is the standard deviation over the seeds."
AVERAGES_OF_OWN_EPOCHS = "Averages are over each method's own epochs, which lie at different points of training."
NOTHING = "-"
LATEX = {
    **{letter: rf"\{letter}" for letter in "%_&#${}"},
    **{letter: f"${letter}$" for letter in "<>|"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "\n": " "},
}
Kind = Literal["word", "count", "ours", "paper", "diff"]
CSV_COLUMNS = (
    *("experiment", "model", "condition", "arm", "period"),
    *("mean", "spread", "seeds", "paper", "difference", "values", "caveat"),
)


@dataclass(frozen=True)
class Score:
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
class Column:
    """A column of text, and what kind of thing it holds; ``group`` is the heading over it and its neighbours."""

    head: str
    kind: Kind
    cells: tuple[str, ...]
    group: str = ""


@dataclass(frozen=True)
class Table:
    """Text in columns, with what must be known to read it."""

    title: str
    notes: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings over the columns, each with the number of columns below it."""
        grouped = groupby(self.columns, key=lambda column: column.group)
        return [(group, len(list(columns))) for group, columns in grouped]

    def without(self, kind: Kind) -> "Table":
        """The table without the columns of a kind."""
        return replace(self, columns=tuple(column for column in self.columns if column.kind != kind))


def entries_of(study: Study) -> list[Score]:
    """Every cell and period of a study."""
    return [
        Score(cell, period, tuple(run.accuracy(period) for run in runs), study.paper.get((cell, period)))
        for cell, runs in study.finished.items()
        for period in PERIODS
    ]


def table_of(study: Study) -> Table:
    """One row per network, condition and arm; for every period ours and, where it gives one, the paper's.

    A network or condition that is the same in all rows stands in the title instead.
    """
    places, common = columns_of_places(list(study.runs))
    entries = {(entry.cell, entry.period): entry for entry in entries_of(study)}
    compared = {period for _, period in study.paper}
    numbers = [
        column
        for period, group in PERIODS.items()
        for column in _columns([entries[cell, period] for cell in study.runs], group, period in compared, not compared)
    ]
    return Table(
        title=", ".join([f"{study.title}: test accuracy (%)", *common]),
        notes=tuple(sentence(note) for note in (study.caveat, *how_to_read(study)) if note),
        columns=(
            *places,
            Column("Seeds", "count", tuple(_seeds(study, cell) for cell in study.runs)),
            *numbers,
        ),
    )


def how_to_read(study: Study) -> list[str]:
    """What a reader must know of the numbers."""
    has_other_moments = len({run.spec.epochs for runs in study.finished.values() for run in runs}) > 1
    own_epochs = [AVERAGES_OF_OWN_EPOCHS] if has_other_moments else []
    return [ABOUT_THE_BUDGET[study.budget], *own_epochs, WHAT_IS_SPREAD]


def columns_of_places(cells: Sequence[Cell]) -> tuple[list[Column], list[str]]:
    """The network, the condition and the method of each row; and what is the same in all rows, instead of a column."""
    words = {"Network": tuple(cell.network for cell in cells), "Condition": tuple(cell.condition for cell in cells)}
    varying = [Column(head, "word", texts) for head, texts in words.items() if len(set(texts)) > 1]
    common = [texts[0] for texts in words.values() if len(set(texts)) == 1 and texts[0]]
    return [*varying, Column("Method", "word", tuple(cell.arm for cell in cells))], common


def sentence(text: str) -> str:
    """The text with a capital at its start and one full stop at its end."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _seeds(study: Study, cell: Cell) -> str:
    diverged = sum(run.summary.state == "diverged" for run in study.runs[cell])
    finished = str(len(study.finished[cell]))
    return f"{finished}, {diverged} diverged" if diverged else finished


def _columns(entries: Sequence[Score], group: str, with_paper: bool, all_ours: bool) -> list[Column]:
    """Ours, with the paper's and the difference where it has one; where all is ours, it need not be called so."""
    ours = Column("ours", "ours", tuple(entry.ours for entry in entries), group)
    if not with_paper:
        return [replace(ours, head=group, group="") if all_ours else ours]
    paper = tuple(NOTHING if entry.paper is None else f"{entry.paper:.2f}" for entry in entries)
    difference = tuple(NOTHING if entry.difference is None else f"{entry.difference:+.2f}" for entry in entries)
    return [ours, Column("paper", "paper", paper, group), Column("diff", "diff", difference, group)]


def to_markdown(table: Table) -> str:
    """A table as GitHub renders it, under its title and notes."""
    notes = "".join(f"\n*{as_markdown(note)}*\n" for note in table.notes)
    return f"## {as_markdown(table.title)}\n{notes}\n" + "\n".join(markdown_rows(table)) + "\n"


def markdown_rows(table: Table, links: Sequence[str] = ()) -> list[str]:
    """The lines of the table with the period in every heading; ``links`` are Markdown, one for each row."""
    heads = [f"{column.group}: {column.head}" if column.group else column.head for column in table.columns]
    marks = ["---" if column.kind == "word" else "---:" for column in table.columns]
    rows = [[as_markdown(cell) for cell in row] for row in table.rows]
    if links:
        heads, marks = [*heads, "Runs by seed"], [*marks, "---"]
        rows = [[*row, link] for row, link in zip(rows, links, strict=True)]
    return ["| " + " | ".join(cells) + " |" for cells in (heads, marks, *rows)]


def as_markdown(text: str) -> str:
    """The text with nothing in it that Markdown would take for its own."""
    return re.sub(r"([\\`*_|<\[\]])", r"\\\1", " ".join(text.split()))


def to_latex(table: Table) -> str:
    """A table for booktabs, no wider than the page; the differences are left to the reader, for want of room."""
    table = table.without("diff")
    headings, rules, start = [], [], 1
    for title, width in table.groups:
        headings.append(rf"\multicolumn{{{width}}}{{c}}{{{_as_latex(title)}}}")
        rules += [rf"\cmidrule(lr){{{start}-{start + width - 1}}}"] if title else []
        start += width
    lines = [
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{_as_latex(' '.join((sentence(table.title), *table.notes)))}}}\medskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{''.join('l' if column.kind == 'word' else 'r' for column in table.columns)}}}",
        r"\toprule",
        *([" & ".join(headings) + r" \\", "".join(rules)] if rules else []),
        _latex_row([column.head for column in table.columns]),
        r"\midrule",
        _latex_body(table),
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "% needs \\usepackage{booktabs,graphicx}\n" + "\n".join(lines) + "\n"


def _latex_body(table: Table) -> str:
    """The rows, with a little space where another network or condition begins."""
    num_places = sum(column.kind == "word" for column in table.columns) - 1
    groups = groupby(table.rows, key=lambda row: row[:num_places])
    return "\n\\addlinespace\n".join("\n".join(map(_latex_row, rows)) for _, rows in groups)


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(_as_latex, cells)) + r" \\"


def _as_latex(text: str) -> str:
    """The text with all that LaTeX takes for a command escaped, and a question mark for letters its fonts lack."""
    known = (LATEX.get(letter) or (letter if " " <= letter <= "~" or "À" <= letter <= "ÿ" else "?") for letter in text)
    return "".join(known)


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
