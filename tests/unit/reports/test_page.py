"""The page holds everything, escapes what it shows and asks the network for nothing."""

import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from bcsc.experiments.study import read_studies
from bcsc.reports import page
from bcsc.reports.claims import CLAIMS, judge
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run, write_study


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "plotly_js", lambda: "/* plotly {{ js }} */")


def page_text(root: Path) -> str:
    studies, damaged = read_studies(root)
    return page.page_of(studies, judge(CLAIMS, studies), damaged)


class Outline(HTMLParser):
    """Counts the tags of a page as a browser sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags[tag] += 1

    @classmethod
    def of(cls, text: str) -> Counter[str]:
        outline = cls()
        outline.feed(text)
        return outline.tags


def data_text(text: str) -> str:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return found[1]


def data_in(text: str) -> Any:
    return json.loads(data_text(text), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_it_shows_verdicts_tables_curves_and_runs_with_their_origin(tmp_path: Path) -> None:
    text = page_text(write_study(tmp_path, "outliers", epochs=3, seeds=[0, 1], blocks=[2]))
    assert 'id="claim-robust-to-outliers"' in text
    assert "7 claims without runs here" in text
    assert text.count('<details class="run">') == 2 * 4 * 2
    assert "commit = 0123abc" in text
    assert "outliers = &#34;symmetric:0.15&#34;" in text
    assert text.count("cut down: 3 of 200 epochs, 2 of 3 seeds, M = 2 instead of 2, 4, 8") == 2
    assert [len(lines) for lines in data_in(text)["charts"].values()] == [2, 2, 2, 2]


def test_numbers_that_are_none_become_gaps(tmp_path: Path) -> None:
    spec = RunSpec(epochs=2)
    write_run(tmp_path, spec, state="diverged", epochs_done=1, accuracy=lambda _spec, _epoch: math.nan)
    assert data_in(page_text(tmp_path))["charts"]["other-runs-chart-0"][0]["y"]["test_loss"]["mean"] == [None]


HOSTILE = ["</script><b>", "<!--<script>", "{{ title }}{% endmacro %}", "a\u2028b&amp;'\""]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_setting_can_break_out_of_where_it_is_shown(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "good", RunSpec(epochs=1))
    good = page_text(tmp_path)
    write_run(tmp_path / "bad", RunSpec(epochs=1, data=text, optimizer=text))
    bad = page_text(tmp_path)
    assert Outline.of(bad)["script"] == Outline.of(good)["script"] == 3
    assert Outline.of(bad)["b"] == Outline.of(good)["b"] + 1, "the name of the second run, and nothing else"
    assert "<" not in data_text(bad)
    assert any(text in chart[0]["arm"] for chart in data_in(bad)["charts"].values())


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    (write_run(tmp_path / "bad", RunSpec(epochs=1)) / "run.toml").write_text("epochs =")
    assert f"{tmp_path}/bad/run.toml cannot be read" in page_text(tmp_path)
