"""What was tuned is in the report: the choice, all candidates, and a warning at the edge of the grid."""

from pathlib import Path

import pytest

from bcsc.experiments.experiment import Cell
from bcsc.experiments.planning.plan_file import experiment_from_toml
from bcsc.experiments.study import read_studies, write_experiment
from bcsc.experiments.tuning import Candidate, Decision, with_decisions, write_decisions
from bcsc.reports.claims import CLAIMS, judge
from bcsc.reports.decisions import decisions_of
from bcsc.reports.page import TITLE, page_of
from bcsc.reports.write import claims_to_markdown, write_study
from tests.run_folders import study_in_memory, write_run

PLAN = """\
title = "Mine"
seeds = [0, 1]
budget = "gradient evaluations"
tuning = { validation = 100 }
recipe = { data = "digits", epochs = 2 }
[[arm]]
label = "SGD"
method = "sgd"
lr = { tune = [0.01, 0.1] }
[[arm]]
label = "BCSC M={M}"
method = "bcsc"
blocks = [8]
[[claim]]
says = "BCSC M={M} over SGD"
"""
TUNED = Cell("lenet4", "", "SGD")
WARNING = "lr = 0.1 is the largest that was tried: the best may lie beyond it"
DECISION = Decision(
    {"lr": 0.1}, (Candidate({"lr": 0.01}, (80.0,)), Candidate({"lr": 0.1}, (90.0,))), warnings=(WARNING,)
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_experiment(tmp_path, "mine", {}, PLAN)
    write_decisions(tmp_path, {TUNED: DECISION})
    for run in with_decisions(experiment_from_toml(PLAN, "mine", "mine.toml"), {TUNED: DECISION}).runs():
        write_run(tmp_path / "runs" / run.name, run.spec)
    return tmp_path


def test_a_row_has_the_choice_every_candidate_and_the_warning(root: Path) -> None:
    (study,), _ = read_studies(root)
    table = decisions_of(study)
    assert table is not None
    assert [column.head for column in table.columns] == ["Method", "Chosen", "On held-out samples", "Note"]
    assert table.rows == [("SGD", "lr = 0.1", "0.01: 80.00 %; 0.1: 90.00 %", WARNING)]
    (note,) = table.notes
    assert "at one seed that no final run has" in note


def test_the_number_of_seeds_that_decided_is_given(root: Path) -> None:
    write_decisions(root, {TUNED: Decision({"lr": 0.1}, (Candidate({"lr": 0.1}, (80.0, 90.0)),))})
    (study,), _ = read_studies(root)
    table = decisions_of(study)
    assert table is not None
    assert "in the mean of 2 seeds that no final run has" in table.notes[0]


def test_what_was_only_timed_says_so(root: Path) -> None:
    write_decisions(root, {TUNED: Decision({"epochs": 3}, seconds_per_epoch=1.25)})
    (study, *_others), _ = read_studies(root)
    table = decisions_of(study)
    assert table is not None
    assert table.notes == ()
    assert [column.head for column in table.columns] == ["Method", "Chosen", "Seconds per epoch"]
    assert table.rows == [("SGD", "epochs = 3", "1.25")]


def test_a_plan_that_leaves_nothing_open_has_no_such_table() -> None:
    assert decisions_of(study_in_memory("adagrad", lambda *_: 50.0, epochs=2)) is None


def test_the_page_and_the_markdown_show_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    monkeypatch.setattr("bcsc.reports.write.write_figures", lambda *_: [])
    (study,), _ = read_studies(root)
    page = page_of({"mine": study}, judge(CLAIMS, [study]), [])
    write_study(study, "mine", root)
    markdown = (root / "mine.md").read_text()
    for text in (page, markdown):
        assert WARNING in text
        assert "0.01: 80.00 %" in text
        assert "All methods had equal gradient evaluations." in text
        assert "The paper" not in text


def test_the_report_on_a_plan_of_ones_own_is_about_nothing_else(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    (study,), _ = read_studies(root)
    verdicts = judge(CLAIMS, [study])
    assert [verdict.claim.statement for verdict in verdicts] == ["BCSC M=8 over SGD."]
    page = page_of({"mine": study}, verdicts, [])
    assert "<h1>Mine</h1>" in page
    assert TITLE not in page
    assert "without runs here" not in page
    lines = claims_to_markdown(verdicts).splitlines()
    assert lines[:3] == ["# Claims", "", "## BCSC M=8 over SGD."]
    assert lines[4].startswith("**not decided in 1 network")
    assert lines[4].endswith("with 2 seeds**"), "without an empty source"
