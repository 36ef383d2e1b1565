"""One self-contained HTML page: verdicts, tables, interactive curves, and every run's configuration and origin."""

import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcsc.experiments.study import OTHER_RUNS, Study
from bcsc.reports.claims import Verdict
from bcsc.reports.curves import (
    ARM_COLOURS,
    AXES,
    QUANTITIES,
    Curve,
    Curves,
    accuracy_limits,
    by_place,
    curves_of,
    loss_limits,
)
from bcsc.reports.decisions import decisions_of
from bcsc.reports.tables import how_to_read, table_of
from bcsc.runs.folder import DamagedRun
from bcsc.runs.record import RunRecord
from bcsc.runs.spec import spec_to_toml
from bcsc.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

TITLE = "Block-cyclic stochastic coordinate descent, put to the test"


def page_of(
    studies: Mapping[str, Study],
    verdicts: Sequence[Verdict],
    damaged: Sequence[DamagedRun],
    *,
    conclusion: Sequence[str] = (),
    files: Mapping[str, Sequence[Path]] = {},
) -> str:
    """The page as text; it needs no network. Studies, and the files beside the page, come by the studies' names."""
    from markupsafe import Markup

    names = distinct([verdict.claim.name for verdict in verdicts])
    claims = {f"claim-{name}": verdict for name, verdict in zip(names, verdicts, strict=True)}
    behind = {anchor: runs_behind(verdict) for anchor, verdict in claims.items()}
    sections = [_section(name, study, files.get(name, ())) for name, study in studies.items()]
    runs = [
        _run(run, cell.arm, [anchor for anchor, folders in behind.items() if run.folder in folders])
        for study in studies.values()
        for cell, group in study.runs.items()
        for run in group
    ]
    template = _environment().get_template("page.html")
    return template.render(
        title=title_of(list(studies.values())),
        version=__version__,
        conclusion=conclusion,
        claims=claims,
        num_runs={anchor: len(folders) for anchor, folders in behind.items()},
        damaged=damaged,
        studies=sections,
        runs=runs,
        axes=AXES,
        colours=ARM_COLOURS,
        data=_finite(_data(sections, runs)),
        css=Markup(_text("page.css")),
        js=Markup(_text("page.js")),
        plotly=Markup(plotly_js()),
    )


def title_of(studies: Sequence[Study]) -> str:
    """That of a plan of one's own, or of the demo, where the page is on it alone."""
    is_own = len(studies) == 1 and not studies[0].is_named and studies[0].name != OTHER_RUNS
    return studies[0].title if is_own else TITLE


def distinct(names: Sequence[str]) -> list[str]:
    """The names as parts of file names and addresses, each told apart from those before it."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unnamed"
        candidates = [plain, *(f"{plain}-{number}" for number in range(2, len(names) + 1))]
        found.append(next(candidate for candidate in candidates if candidate not in found))
    return found


def runs_behind(verdict: Verdict) -> set[Path]:
    """The folders of the runs whose numbers decide."""
    return {folder for case in verdict.cases for folder in case.folders}


def _environment() -> "Environment":
    """Templates in which everything is escaped but what is marked as ours."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("bcsc.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment


def plotly_js() -> str:
    """The charting library itself, to be put into the page."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _text(name: str) -> str:
    return resources.files("bcsc.reports").joinpath("templates", name).read_text(encoding="utf-8")


def _section(name: str, study: Study, files: Sequence[Path]) -> dict[str, Any]:
    """What the page shows of a study."""
    return {
        "name": name,
        "of": study.name,  # the experiment
        "title": study.title if name == study.name else f"{study.title} ({name})",
        "question": study.question,
        "source": study.source,
        "caveat": study.caveat,
        "compared_by": study.compared_by,
        "notes": " ".join(how_to_read(study)),
        "table": table_of(study),
        "decisions": decisions_of(study),
        "places": [cell.place for cell in study.runs],
        "files": _downloads(name, files),
        "arms": _arms(study),
        "charts": _charts(name, study),
    }


def _downloads(name: str, files: Sequence[Path]) -> list[tuple[str, list[tuple[str, str]]]]:
    """What each group of files shows, and for each file its kind and its address."""
    groups = groupby(files, key=lambda path: path.stem)
    return [
        (
            stem.removeprefix(name).strip("-").replace("-", " ") or "table",
            [(p.suffix[1:].upper(), p.name) for p in group],
        )
        for stem, group in groups
    ]


def _arms(study: Study) -> list[str]:
    return list(dict.fromkeys(cell.arm for cell in study.runs))


def _charts(name: str, study: Study) -> list[dict[str, Any]]:
    """One chart per network and condition of which an epoch is done: its id in the page, its title and its lines."""
    colours = {arm: index for index, arm in enumerate(_arms(study))}
    charts = []
    for index, (place, cells) in enumerate(by_place(study.runs).items()):
        known = {cell: curves for cell in cells if (curves := curves_of(study.runs[cell])) is not None}
        if not known:
            continue
        lines = [_line(cell.arm, colours[cell.arm], curves) for cell, curves in known.items()]
        limits = {
            quantity: (accuracy_limits if quantity == "test_accuracy" else loss_limits)(
                [curves.quantities[quantity].mean for curves in known.values()]
            )
            for quantity in QUANTITIES
        }
        charts.append({"id": f"{name}-chart-{index}", "title": place, "lines": lines, "limits": limits})
    return charts


def _line(arm: str, colour: int, curves: Curves) -> dict[str, Any]:
    return {
        "arm": arm,
        "colour": colour,
        "seeds": curves.num_seeds,
        "x": curves.positions,
        "y": {name: _drawn(curve) for name, curve in curves.quantities.items()},
    }


def _drawn(curve: Curve) -> dict[str, list[float]]:
    return {"mean": curve.mean, "low": curve.low, "high": curve.high}


def _run(run: RunRecord, arm: str, claims: Sequence[str]) -> dict[str, Any]:
    """A row of the table of runs, the claims it is evidence for, and what a click on it shows."""
    summary = run.summary
    return {
        "name": run.folder.name,
        "model": run.spec.model,
        "data": run.spec.data,
        "arm": arm,
        "seed": run.spec.seed,
        "state": summary.state,
        "epochs": f"{summary.epochs_done} / {summary.epochs}",
        "final": f"{summary.test_accuracy['final']:.2f}" if summary.test_accuracy else "",
        "seconds": f"{summary.seconds:.0f}",
        "claims": claims,
        "folder": str(run.folder),
        "message": summary.message,
        "configuration": spec_to_toml(run.spec),
        "origin": "\n".join(f"{name} = {value}" for name, value in run.origin.items()),
    }


def _data(sections: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the script of the page draws and shows."""
    shown_on_click = ("name", "folder", "message", "configuration", "origin")
    return {
        "colours": ARM_COLOURS,
        "axes": AXES,
        "quantities": QUANTITIES,
        "charts": {chart["id"]: chart for section in sections for chart in section["charts"]},
        "runs": [{name: run[name] for name in shown_on_click} for run in runs],
    }


def _finite(value: Any) -> Any:
    """For JSON, which has no NaN: null instead, and no more digits than a chart can show."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
