"""One self-contained HTML page: verdicts, tables, interactive curves, and every run's configuration and origin."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import groupby
from typing import Any

from bcsc.experiments.study import Study
from bcsc.reports.claims import Case, Verdict
from bcsc.reports.curves import AXES, QUANTITIES, Curve, curves_of
from bcsc.reports.tables import COST_OF_AN_EPOCH, WHAT_IS_SPREAD, Table, table_of
from bcsc.runs.record import RunRecord
from bcsc.runs.spec import spec_to_toml
from bcsc.runs.store import DamagedRun
from bcsc.version import __version__

# Told apart by eyes of all kinds, on light and on dark ground.
COLOURS = ("#3987d8", "#e07b39", "#2aa17c", "#c2589f", "#b99a1f", "#7d74d9", "#d1495b", "#4aa3b5")
TITLE = "Block-cyclic stochastic coordinate descent, put to the test"


def page_of(studies: Sequence[Study], verdicts: Sequence[Verdict], damaged: Sequence[DamagedRun]) -> str:
    """The page as text; it needs no network."""
    runs = [run for study in studies for group in study.runs.values() for run in group]
    unseen = [verdict for verdict in verdicts if not verdict.cases]
    data = {
        "colours": COLOURS,
        "axes": AXES,
        "quantities": QUANTITIES,
        "charts": {chart_id: lines for study in studies for chart_id, (_, lines) in _charts(study).items()},
    }
    return fill_in(
        _text("page.html"),
        {
            "title": TITLE,
            "lead": f"{sum(run.is_finished for run in runs)} finished of {len(runs)} runs found. bcsc {__version__}.",
            "cost": f"{COST_OF_AN_EPOCH} {WHAT_IS_SPREAD} The curves can show gradient evaluations and seconds too.",
            "nav": "".join(f'<a href="#{anchor}">{escape(title)}</a>' for anchor, title in _places(studies)),
            "css": _text("page.css"),
            "damaged": _damaged(damaged),
            "verdicts": "".join(_verdict(verdict) for verdict in verdicts if verdict.cases),
            "unseen": _unseen(unseen),
            "studies": "".join(map(_study, studies)),
            "runs": "".join(_run(run) for run in runs),
            "data": json.dumps(_finite(data)).replace("</", "<\\/"),
            "plotly": plotly_js(),
            "js": _text("page.js"),
        },
    )


def fill_in(template: str, values: Mapping[str, str]) -> str:
    """The template with every {{name}} replaced once; what is put in is not looked at again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)


def plotly_js() -> str:
    """The charting library itself, to be put into the page."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _text(name: str) -> str:
    return resources.files("bcsc.reports").joinpath("templates", name).read_text(encoding="utf-8")


def _places(studies: Iterable[Study]) -> list[tuple[str, str]]:
    return [("claims", "Claims"), *((study.name, study.title) for study in studies), ("runs", "Runs")]


def _damaged(damaged: Sequence[DamagedRun]) -> str:
    if not damaged:
        return ""
    items = "".join(f"<li>{escape(run.reason)}</li>" for run in damaged)
    return f'<section class="damaged" id="damaged"><h2>Folders that could not be read</h2><ul>{items}</ul></section>'


def _verdict(verdict: Verdict) -> str:
    caveats = dict.fromkeys(case.caveat for case in verdict.cases if case.caveat)
    notes = "".join(f'<span class="note">{escape(caveat)}</span>' for caveat in caveats)
    cases = "".join(map(_case, verdict.cases))
    held = sum(case.state == "holds" for case in verdict.cases)
    return (
        f'<article class="verdict" id="claim-{verdict.claim.name}">{_badge(verdict.state)}'
        f"<p>{escape(verdict.claim.statement)}</p>"
        f'<div class="scope">{escape(verdict.scope)}</div>'
        f'<div class="source">{escape(verdict.claim.source)}</div>{notes}'
        f"<details><summary>{held} of {len(verdict.cases)} cases hold</summary>"
        f'<ul class="cases">{cases}</ul></details></article>'
    )


def _case(case: Case) -> str:
    return f"<li>{_badge(case.state)} {escape(case.label)}: <b>{escape(case.numbers)}</b></li>"


def _badge(state: str) -> str:
    return f'<span class="state {state.replace(" ", "-")}">{state}</span>'


def _unseen(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    items = "".join(
        f"<li>{_badge(verdict.state)} {escape(verdict.claim.statement)} "
        f"<span class='soft'>bcsc reproduce {' or '.join(verdict.claim.rules)}</span></li>"
        for verdict in verdicts
    )
    count = f"{len(verdicts)} claim{'s' if len(verdicts) > 1 else ''}"
    return f'<details><summary>{count} without runs here</summary><ul class="cases">{items}</ul></details>'


def _study(study: Study) -> str:
    note = f'<p class="note">{escape(study.caveat)}</p>' if study.caveat else ""
    source = f'<p class="source">{escape(study.source)}</p>' if study.source else ""
    charts = "".join(
        f'<div class="chart"><h3>{escape(title)}</h3><div class="plot" id="{chart_id}"></div></div>'
        for chart_id, (title, _) in _charts(study).items()
    )
    return (
        f'<section class="study" id="{study.name}"><h2>{escape(study.title)}</h2><p>{escape(study.question)}</p>'
        f'{source}{note}{_table(table_of(study))}{_controls(study)}<div class="charts">{charts}</div></section>'
    )


def _table(table: Table) -> str:
    starts, position = set(), 0
    for title, width in table.groups:
        starts |= {position} if title else set()
        position += width

    def kind(column: int) -> str:
        names = ["word"] if column < table.num_labels else ["ours"] if table.columns[column] == "ours" else []
        return " ".join([*names, *(["starts"] if column in starts else [])])

    groups = "".join(
        f'<th colspan="{width}"{" class=starts" if title else ""}>{escape(title)}</th>' for title, width in table.groups
    )
    heads = "".join(
        f'<th class="{kind(column)}" data-column="{column}"><button>{escape(head)}</button></th>'
        for column, head in enumerate(table.columns)
    )
    rows = "".join(
        "<tr>" + "".join(f'<td class="{kind(column)}">{escape(cell)}</td>' for column, cell in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll"><table><thead><tr class="groups">{groups}</tr><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _controls(study: Study) -> str:
    arms = "".join(
        f'<label><input type="checkbox" checked name="{study.name}-arm" value="{escape(arm)}">'
        f'<span class="swatch" style="--colour: {COLOURS[index % len(COLOURS)]}"></span>{escape(arm)}</label>'
        for index, arm in enumerate(_arms(study))
    )
    shown = {name: title.split(" (")[0] for name, title in QUANTITIES.items()}
    return (
        '<div class="controls">'
        + _radios(f"{study.name}-axis", "against", AXES, study.compared_by)
        + _radios(f"{study.name}-quantity", "show", shown, "test_accuracy")
        + f'<label><input type="checkbox" name="{study.name}-log">log axis</label>'
        + f'<fieldset class="arms"><legend>methods</legend>{arms}</fieldset></div>'
    )


def _radios(name: str, legend: str, options: Mapping[Any, str], checked: str) -> str:
    labels = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"{" checked" * (value == checked)}>{title}</label>'
        for value, title in options.items()
    )
    return f"<fieldset><legend>{legend}</legend>{labels}</fieldset>"


def _arms(study: Study) -> list[str]:
    return list(dict.fromkeys(cell.arm for cell in study.runs))


def _charts(study: Study) -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """By the id of its place in the page: the title of a chart and its lines."""
    colours = {arm: index for index, arm in enumerate(_arms(study))}
    charts = {}
    for index, (place, cells) in enumerate(groupby(study.runs, key=lambda cell: cell.place)):
        lines = [
            {
                "arm": cell.arm,
                "colour": colours[cell.arm],
                "seeds": curves.num_seeds,
                "x": curves.positions,
                "y": {name: _drawn(curve) for name, curve in curves.quantities.items()},
            }
            for cell in cells
            if (curves := curves_of(study.runs[cell])) is not None
        ]
        charts[f"{study.name}-chart-{index}"] = (place, lines)
    return charts


def _drawn(curve: Curve) -> dict[str, list[float]]:
    return {"mean": curve.mean, "low": curve.low, "high": curve.high}


def _finite(value: Any) -> Any:
    """For JSON, which has no NaN: null instead, and no more digits than a chart can show."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _run(run: RunRecord) -> str:
    summary = run.summary
    message = f"<p>{escape(summary.message)}</p>" if summary.message else ""
    origin = "\n".join(f"{name} = {value}" for name, value in run.origin.items())
    outcome = f"{summary.epochs_done} of {summary.epochs} epochs, {summary.seconds:,.0f} s"
    accuracy = f", final accuracy {summary.test_accuracy['final']:.2f} %" if summary.test_accuracy else ""
    return (
        f'<details class="run"><summary><b>{escape(run.folder.name)}</b> '
        f'<span class="soft">{escape(summary.state)}: {outcome}{accuracy}</span></summary>{message}'
        f'<div class="columns"><div><h3>Configuration</h3><pre>{escape(spec_to_toml(run.spec))}</pre></div>'
        f"<div><h3>Origin</h3><pre>{escape(origin)}</pre></div></div></details>"
    )
