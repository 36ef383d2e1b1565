"""The demo ends with its table and the path of its report."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bcsc.cli import main
from bcsc.experiments import first_look
from bcsc.experiments.study import read_studies
from bcsc.runs.folder import read_runs
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run


@pytest.mark.slow
def test_the_demo_shows_its_table_and_writes_its_report(tmp_path: Path, monkeypatch, capsys) -> None:
    quick = {name: replace(spec, epochs=2, subset=200) for name, spec in first_look.RUNS.items()}
    monkeypatch.setattr(first_look, "RUNS", quick)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in quick)
    told = [line for line in printed.splitlines() if "epoch 2/2  accuracy" in line]
    assert [line.partition(":")[0] for line in told] == list(quick)
    assert "epoch 1/2" not in printed
    assert printed.strip().endswith(str(tmp_path / "demo" / "report" / "index.html"))
    assert (tmp_path / "demo" / "report" / "index.html").stat().st_size > 100_000
    assert (tmp_path / "demo" / "report" / "demo-accuracy.png").exists()
    (answer,) = re.findall(r"Epoch for epoch BCSC ends at .* %\.", printed)
    assert (tmp_path / "demo" / "report" / "index.html").read_text().count(f"<p>{answer}</p>") == 1


def test_the_runs_of_the_demo_compare_at_equal_epochs_and_at_equal_compute() -> None:
    sgd, bcsc, equal = first_look.RUNS.values()
    assert sgd.epochs == bcsc.epochs
    assert equal.epochs == bcsc.epochs * bcsc.blocks
    assert equal.lr == pytest.approx(0.1 / bcsc.blocks)
    assert {spec.outliers for spec in first_look.RUNS.values()} == {"symmetric:0.15"}


def test_the_conclusion_gives_both_comparisons_and_needs_all_runs() -> None:
    final = dict(zip(first_look.RUNS, (80.0, 90.0, 91.5), strict=True))
    first, second, last = first_look.conclusion(final)
    assert first == (
        "Epoch for epoch BCSC ends at 90.00 % and SGD at 80.00 %; with as many gradients as BCSC, SGD ends at 91.50 %."
    )
    assert "of the +10.00 points by epoch, -1.50 are left" in second
    assert "not a result" in last
    assert first_look.conclusion({"SGD": 80.0}) == []


def test_a_report_on_the_demo_calls_its_runs_by_their_names_and_one_on_more_does_not(tmp_path: Path) -> None:
    for index, spec in enumerate(first_look.RUNS.values()):
        write_run(tmp_path / str(index), spec)
    (study,), _ = read_studies(tmp_path)
    demo = first_look.in_its_own_words(study)
    assert (demo.name, demo.title) == ("demo", first_look.TITLE)
    assert [cell.arm for cell in demo.runs] == list(first_look.RUNS)
    assert [run.spec for runs in demo.runs.values() for run in runs] == list(first_look.RUNS.values())
    write_run(tmp_path / "other", RunSpec(epochs=1))
    (study,), _ = read_studies(tmp_path)
    assert first_look.in_its_own_words(study) == study


def test_runs_of_the_demo_are_known_by_what_they_compute(tmp_path: Path) -> None:
    for index, spec in enumerate(first_look.RUNS.values()):
        write_run(tmp_path / str(index), replace(spec, threads=2), accuracy=lambda *_, index=index: 80.0 + index)
    write_run(tmp_path / "other", RunSpec(epochs=1))
    records, _ = read_runs(tmp_path)
    assert first_look.final_accuracies(records) == dict(zip(first_look.RUNS, (80.0, 81.0, 82.0), strict=True))
