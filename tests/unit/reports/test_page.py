"""The page holds everything, escapes what it shows and asks the network for nothing."""

import json
import math
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.experiments.study import read_studies
from bcsc.reports import page
from bcsc.reports.claims import CLAIMS, judge
from bcsc.runs.spec import RunSpec
from tests.run_folders import explode, write_run, write_study


@pytest.fixture(autouse=True)
def _without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "plotly_js", lambda: "/* plotly {{ js }} */")


def page_text(root: Path, **more: Any) -> str:
    studies, damaged = read_studies(root)
    return page.page_of({study.name: study for study in studies}, judge(CLAIMS, studies), damaged, **more)


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


def test_it_opens_with_verdicts_then_tables_then_runs(tmp_path: Path) -> None:
    text = page_text(write_study(tmp_path, "outliers", epochs=3, seeds=[0, 1], blocks=[2]))
    order = [
        text.index(part) for part in ('id="claims"', 'id="claim-robust-to-outliers"', "<table>", 'id="runs-table"')
    ]
    assert order == sorted(order)
    assert f"{len(CLAIMS) - 2} claims without runs here" in text
    assert "cut down: 3 of 200 epochs, 2 of 3 seeds, M = 2 instead of 2, 4, 8" in text
    charts = data_in(text)["charts"]
    assert [len(chart["lines"]) for chart in charts.values()] == [2, 2, 2, 2]


def test_every_run_has_a_row_its_configuration_and_its_origin(tmp_path: Path) -> None:
    text = page_text(write_study(tmp_path, "outliers", epochs=3, seeds=[0, 1], blocks=[2]))
    runs = data_in(text)["runs"]
    assert text.count('<button class="run"') == len(runs) == 2 * 4 * 2
    assert {'outliers = "symmetric:0.15"' in run["configuration"] for run in runs} == {True, False}
    assert all("commit = 0123abc" in run["origin"] for run in runs)


def test_a_verdict_leads_to_the_runs_that_decide_it_and_no_others(tmp_path: Path) -> None:
    write_study(tmp_path / "a", "cifar10", epochs=2, models=["lenet4"])
    write_study(tmp_path / "b", "blocks", epochs=2, models=["lenet4"], blocks=[8])
    text = page_text(tmp_path)
    assert '<a class="to-runs" href="#runs-behind-claim-bcsc-over-sgd">6 runs</a>' in text
    behind = re.findall(r'<tr data-claims="(.*?)">.*?<button class="run" data-run="\d+">(.*?)</button>', text)
    found = {name for claims, name in behind if "claim-bcsc-over-sgd" in claims.split()}
    assert found == {f"lenet4-{arm}-seed-{seed}" for arm in ("sgd", "bcsc-m-8") for seed in (0, 1, 2)}


def test_a_verdict_on_a_part_looks_different_from_one_on_the_whole_and_says_what_its_interval_is(
    tmp_path: Path,
) -> None:
    def better(spec: RunSpec, _epoch: int) -> float:
        return 50.0 + spec.blocks * (1 + 0.1 * spec.seed)

    whole = page_text(write_study(tmp_path / "whole", "adagrad", accuracy=better))
    part = page_text(write_study(tmp_path / "part", "adagrad", accuracy=better, epochs=2))
    assert '<article class="verdict holds" id="claim-persists-with-adagrad">' in whole
    assert '<article class="verdict holds-so-far part" id="claim-persists-with-adagrad">' in part
    for text in (whole, part):
        assert "±: 95 % t interval over 3 paired seeds, in percentage points" in text


def test_runs_of_no_experiment_have_no_empty_section_of_claims(tmp_path: Path) -> None:
    write_run(tmp_path, RunSpec(epochs=1))
    text = page_text(tmp_path)
    assert 'id="claims"' not in text
    assert 'id="conclusion"' not in text
    with_conclusion = page_text(tmp_path, conclusion=["First.", "Then."])
    order = [with_conclusion.index(part) for part in ("First.", "<table>", 'id="conclusion"', "<p>First.", "<p>Then.")]
    assert order == sorted(order), "the answer first, and the whole of it at the end"


def test_places_without_an_epoch_have_no_chart(tmp_path: Path) -> None:
    root = write_study(tmp_path, "outliers", epochs=2, seeds=[0], blocks=[2])
    for folder in (root / "runs").iterdir():
        if "no-outliers" not in folder.name:
            shutil.rmtree(folder)
    text = page_text(root)
    assert list(data_in(text)["charts"]) == ["outliers-chart-0"]
    shutil.rmtree(root / "runs")
    assert "Curves are drawn once an epoch is done." in page_text(root)


def test_a_study_that_goes_by_its_folder_says_so(tmp_path: Path) -> None:
    (study,), _ = read_studies(write_study(tmp_path, "blocks", epochs=2, seeds=[0], models=["lenet4"]))
    text = page.page_of({"short": study, "long": study}, [], [])
    assert re.findall("<h2>(.*?)</h2>", text)[:2] == ["The number of blocks (short)", "The number of blocks (long)"]


def test_what_lies_beside_the_page_can_be_downloaded(tmp_path: Path) -> None:
    write_run(tmp_path, RunSpec(epochs=1))
    names = (
        "other-runs.csv",
        "other-runs.tex",
        "other-runs-gradient-evaluations.png",
        "other-runs-gradient-evaluations.pdf",
    )
    text = page_text(tmp_path, files={"other-runs": [tmp_path / name for name in names]})
    assert re.findall(r'<a href="(.*?)" download>(.*?)</a>', text) == list(
        zip(names, ("CSV", "TEX", "PNG", "PDF"), strict=True)
    )
    assert "<span>gradient evaluations: <a" in text


def test_an_exploding_arm_does_not_set_the_ends_of_the_losses(tmp_path: Path) -> None:
    root = write_study(tmp_path, "cifar10", epochs=4, models=["lenet4"], seeds=[0])
    explode(root / "runs" / "lenet4-adagrad-seed-0")
    (chart,) = data_in(page_text(root))["charts"].values()
    assert max(line["y"]["test_loss"]["mean"][0] for line in chart["lines"]) > 1e5
    assert 0.1 < chart["limits"]["test_loss"][0] < chart["limits"]["test_loss"][1] < 10
    assert chart["limits"]["test_accuracy"][0] == min(line["y"]["test_accuracy"]["mean"][0] for line in chart["lines"])


@given(st.lists(st.sampled_from(["a", "A", "a 2", "a-2", "", "../a", "b"]), max_size=8))
def test_names_are_told_apart_and_safe_in_addresses_and_files(names: list[str]) -> None:
    found = page.distinct(names)
    assert len(set(found)) == len(found) == len(names)
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in found)


def test_numbers_that_are_none_become_gaps(tmp_path: Path) -> None:
    spec = RunSpec(epochs=2)
    write_run(tmp_path, spec, state="diverged", epochs_done=1, accuracy=lambda _spec, _epoch: math.nan)
    assert data_in(page_text(tmp_path))["charts"]["other-runs-chart-0"]["lines"][0]["y"]["test_loss"]["mean"] == [None]


HOSTILE = ["</script><b>", "<!--<script>", "{{ title }}{% endmacro %}", "a\u2028b&amp;'\""]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_setting_can_break_out_of_where_it_is_shown(tmp_path: Path, text: str) -> None:
    write_run(tmp_path / "good", RunSpec(epochs=1))
    good = page_text(tmp_path)
    write_run(tmp_path / "bad", RunSpec(epochs=1, data=text, optimizer=text))
    bad = page_text(tmp_path)
    assert Outline.of(bad)["script"] == Outline.of(good)["script"] == 3
    assert Outline.of(bad)["b"] == Outline.of(good)["b"]
    assert "<" not in data_text(bad)
    assert any(text in chart["lines"][0]["arm"] for chart in data_in(bad)["charts"].values())


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    (write_run(tmp_path / "bad", RunSpec(epochs=1)) / "run.toml").write_text("epochs =")
    assert f"{tmp_path}/bad/run.toml cannot be read" in page_text(tmp_path)
