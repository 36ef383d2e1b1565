"""The page holds everything, escapes what it shows and asks the network for nothing."""

import json
import math
import re
from pathlib import Path

import pytest

from bcsc.experiments.study import read_studies
from bcsc.reports import page
from bcsc.reports.claims import CLAIMS, judge
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run, write_study


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "plotly_js", lambda: "/* plotly {{js}} */")


def page_text(root: Path) -> str:
    studies, damaged = read_studies(root)
    return page.page_of(studies, judge(CLAIMS, studies), damaged)


def data_in(text: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, object] = json.loads(found[1], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return data


def test_it_shows_verdicts_tables_curves_and_runs_with_their_origin(tmp_path: Path) -> None:
    text = page_text(write_study(tmp_path, "outliers", epochs=3, seeds=[0, 1], blocks=[2]))
    assert 'id="claim-robust-to-outliers"' in text
    assert "7 claims without runs here" in text
    assert text.count('<details class="run">') == 2 * 4 * 2
    assert "commit = 0123abc" in text
    assert "outliers = &quot;symmetric:0.15&quot;" in text
    assert text.count("cut down: 3 of 200 epochs, 2 of 3 seeds, M = 2 instead of 2, 4, 8") == 2
    charts = data_in(text)["charts"]
    assert isinstance(charts, dict)
    assert [len(lines) for lines in charts.values()] == [2, 2, 2, 2]


def test_numbers_that_are_none_become_gaps(tmp_path: Path) -> None:
    spec = RunSpec(epochs=2)
    write_run(tmp_path, spec, state="diverged", epochs_done=1, accuracy=lambda _spec, _epoch: math.nan)
    assert data_in(page_text(tmp_path))["charts"]["other-runs-chart-0"][0]["y"]["test_loss"]["mean"] == [None]


def test_what_is_shown_is_escaped(tmp_path: Path) -> None:
    write_run(tmp_path, RunSpec(epochs=1, data="</script><b>"))
    text = page_text(tmp_path)
    assert "</script><b>" not in text
    assert "&lt;/script&gt;&lt;b&gt;" in text


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    (write_run(tmp_path / "bad", RunSpec(epochs=1)) / "run.toml").write_text("epochs =")
    assert f"{tmp_path}/bad/run.toml cannot be read" in page_text(tmp_path)


def test_filling_in_does_not_look_at_what_it_put_in() -> None:
    assert page.fill_in("{{a}}-{{b}}", {"a": "{{b}}", "b": r"\1"}) == r"{{b}}-\1"
