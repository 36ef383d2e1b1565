"""A comparison of one's own on real data, from a file to a verdict; its tuning never sees a test label."""

import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bcsc
from bcsc.cli import main
from bcsc.cli.compare import build_engine
from bcsc.data import DataSet, load
from bcsc.errors import Diverged
from bcsc.experiments.campaigns import local
from bcsc.experiments.campaigns.campaign import Job
from bcsc.experiments.study import read_studies
from bcsc.experiments.tuning import DECISIONS_FILE, read_decisions
from bcsc.reports import write
from bcsc.runs import build
from bcsc.runs.run import run

PLAN = """\
title = "Lion against BCSC"
question = "Does BCSC keep up with Lion where labels are wrong?"
seeds = [0, 1, 2]
budget = "gradient evaluations"
tuning = { validation = 80, seeds = [10] }

[recipe]
data = "digits"
epochs = 2
batch_size = 32
subset = 250
threads = 1

[[condition]]
label = "clean"

[[condition]]
label = "20 % wrong labels"
outliers = "symmetric:0.2"

[[arm]]
label = "BCSC M={M}"
method = "bcsc"
blocks = [2]
lr = { tune = [0.0001, 0.05] }

[[arm]]
label = "Lion"
method = "sgd"
optimizer = "pytorch_optimizer:Lion"
lr = { tune = [0.0, 0.001] }

[[claim]]
says = ["BCSC M={M} over Lion", "Lion falls by less than 50 points"]
periods = ["final"]
"""


class TrainingHere:
    """An engine that trains in this process, one run after the other."""

    def __init__(self, num_jobs: int | None = None) -> None:
        self.running: list[Job] = []

    def carry_out(self, jobs: Sequence[Job]) -> Generator[list[tuple[Job, int]]]:
        for job in jobs:
            try:
                run(job.spec, job.folder)
                yield [(job, 0)]
            except Diverged:
                yield [(job, 3)]

    def command(self, job: Job) -> str:
        return f"bcsc train --config {job.config} --out {job.folder}"


pytest.importorskip("pytorch_optimizer", reason="an arm is from another package: pip install 'bcsc[integrations]'")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(local, "LocalProcesses", TrainingHere)
    monkeypatch.setattr(write, "write_figures", lambda *_arguments: [])
    path = tmp_path / "lion.toml"
    path.write_text(PLAN)
    return path


@pytest.mark.slow
def test_one_command_goes_from_a_file_to_verdicts_on_tuned_arms(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["compare", str(plan), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "8 runs in" in printed  # 2 conditions, 2 arms, 2 candidates, 1 seed
    assert "LeNet4, clean, Lion: lr = 0.001 (on held-out samples 0.0: " in printed
    assert "lr = 0.05 is the largest that was tried: the best may lie beyond it" in printed
    assert "Lion against BCSC: 12 runs\n" in printed
    assert (
        " in 1 network, at 2 epochs of the costliest arm and equal gradient evaluations for all, with 3 seeds, "
        "on the first 250 training samples.\n" in printed
    )
    (study,), damaged = read_studies(out)
    assert not damaged
    assert (study.budget, study.num_finished, study.num_planned) == ("gradient_evaluations", 12, 12)
    assert len({run.summary.gradient_evaluations for runs in study.runs.values() for run in runs}) == 1
    assert {len(decision.candidates) for decision in study.decisions.values()} == {2}
    assert main(["compare", str(plan), "--out", str(out)]) == 0
    assert "12 finished before" in capsys.readouterr().out
    page = (out / "report" / "index.html").read_text()
    assert "lr = 0.05 is the largest that was tried" in page
    assert 'href="#runs-behind-claim-lion-bcsc-m-m-over-lion' in page


@pytest.mark.slow
def test_a_wider_grid_goes_on_in_the_same_folder(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few: dict[str, Any] = {"arms": ["Lion"], "conditions": ["clean"], "seeds": [0]}
    plan.write_text(PLAN.replace("[0.0, 0.001]", "[0.0, 0.00001]"))
    bcsc.compare(plan, tmp_path / "out", **few)
    plan.write_text(PLAN)
    comparison = bcsc.compare(plan, tmp_path / "out", **few)
    printed = capsys.readouterr().out
    assert "1 of 2 runs were done before" in printed
    assert "is of what was decided before; it is kept as" in printed
    (outcome,) = comparison.outcomes
    assert (outcome.state, outcome.skipped, outcome.job.spec.lr) == ("finished", False, 0.001)


@pytest.mark.slow
def test_poisoned_test_labels_change_the_results_and_not_the_choice(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(name: str, **_options: object) -> DataSet:
        dataset = load(name)
        return replace(dataset, test_labels=(dataset.test_labels + 1) % 10)

    def accuracies(out: Path) -> list[float]:
        return [
            json.loads(path.read_text())["test_accuracy"]["final"] for path in sorted(out.glob("runs/*/summary.json"))
        ]

    bcsc.compare(plan, tmp_path / "true", seeds=[0])
    monkeypatch.setattr(build, "load", poisoned)
    bcsc.compare(plan, tmp_path / "poisoned", seeds=[0])
    assert read_decisions(tmp_path / "true") == read_decisions(tmp_path / "poisoned") != {}
    assert (tmp_path / "true" / DECISIONS_FILE).read_bytes() == (tmp_path / "poisoned" / DECISIONS_FILE).read_bytes()
    assert accuracies(tmp_path / "true") != accuracies(tmp_path / "poisoned")


def test_a_failed_candidate_stops_the_comparison_and_is_named(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(TrainingHere, "carry_out", lambda _self, jobs: ([(job, 1)] for job in jobs))
    assert main(["compare", str(plan), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert (
        "8 runs that decide what the plan leaves open failed, the first of them lenet4-clean-bcsc-m-2-lr-0-0001"
        in error
    )
    assert error.count("\n") == 1
    assert not (tmp_path / "out" / "runs").exists()


SMALL = """
title = "Two runs"
seeds = [0]

[recipe]
data = "digits"
subset = 60
epochs = 1

[[arm]]
label = "SGD"
method = "sgd"

[[arm]]
label = "BCSC M={M}"
method = "bcsc"
blocks = [2]
"""


@pytest.mark.slow
def test_the_runs_are_processes_of_the_command_that_people_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(write, "write_figures", lambda *_arguments: [])
    (tmp_path / "plan.toml").write_text(SMALL)
    assert main(["compare", str(tmp_path / "plan.toml"), "--jobs", "1", "--out", str(tmp_path / "out")]) == 0
    (study,), damaged = read_studies(tmp_path / "out")
    assert not damaged
    assert study.num_finished == 2
    assert "[2/2]" in capsys.readouterr().out


def test_as_many_run_at_a_time_as_was_asked_for() -> None:
    assert [build_engine("local", number, None).num_jobs for number in (None, 3)] == [None, 3]
