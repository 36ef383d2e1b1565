"""One self-contained HTML page: verdicts, tables, interactive curves, and every run's configuration and origin."""

import math
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any

from bcsc.experiments.study import Study
from bcsc.reports.claims import Verdict
from bcsc.reports.curves import ARM_COLOURS, AXES, QUANTITIES, Curve, curves_of
from bcsc.reports.tables import COST_OF_AN_EPOCH, WHAT_IS_SPREAD, table_of
from bcsc.runs.folder import DamagedRun
from bcsc.runs.spec import spec_to_toml
from bcsc.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

TITLE = "Block-cyclic stochastic coordinate descent, put to the test"


def page_of(studies: Sequence[Study], verdicts: Sequence[Verdict], damaged: Sequence[DamagedRun]) -> str:
    """The page as text; it needs no network."""
    from markupsafe import Markup

    sections = [_section(study) for study in studies]
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=TITLE,
            version=__version__,
            notes=f"{COST_OF_AN_EPOCH} {WHAT_IS_SPREAD}",
            verdicts=verdicts,
            damaged=damaged,
            studies=sections,
            runs=[run for study in studies for group in study.runs.values() for run in group],
            axes=AXES,
            colours=ARM_COLOURS,
            data=_finite(
                {
                    "colours": ARM_COLOURS,
                    "axes": AXES,
                    "quantities": QUANTITIES,
                    "charts": {chart["id"]: chart["lines"] for section in sections for chart in section["charts"]},
                }
            ),
            css=Markup(_text("page.css")),
            js=Markup(_text("page.js")),
            plotly=Markup(plotly_js()),
        )
    )


def _environment() -> "Environment":
    """Templates in which everything is escaped but what is marked as ours."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("bcsc.reports")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["toml"] = spec_to_toml
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment


def plotly_js() -> str:
    """The charting library itself, to be put into the page."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _text(name: str) -> str:
    return resources.files("bcsc.reports").joinpath("templates", name).read_text(encoding="utf-8")


def _section(study: Study) -> dict[str, Any]:
    """What the page shows of a study."""
    return {
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "source": study.source,
        "caveat": study.caveat,
        "compared_by": study.compared_by,
        "table": table_of(study),
        "arms": _arms(study),
        "charts": _charts(study),
    }


def _arms(study: Study) -> list[str]:
    return list(dict.fromkeys(cell.arm for cell in study.runs))


def _charts(study: Study) -> list[dict[str, Any]]:
    """One chart per network and condition: the id of its place in the page, its title and its lines."""
    colours = {arm: index for index, arm in enumerate(_arms(study))}
    return [
        {
            "id": f"{study.name}-chart-{index}",
            "title": place,
            "lines": [
                {
                    "arm": cell.arm,
                    "colour": colours[cell.arm],
                    "seeds": curves.num_seeds,
                    "x": curves.positions,
                    "y": {name: _drawn(curve) for name, curve in curves.quantities.items()},
                }
                for cell in cells
                if (curves := curves_of(study.runs[cell])) is not None
            ],
        }
        for index, (place, cells) in enumerate(groupby(study.runs, key=lambda cell: cell.place))
    ]


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
