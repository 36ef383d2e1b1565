"""The demo ends with its table and the path of its report."""

from dataclasses import replace
from pathlib import Path

import pytest

from bcsc.cli.main import main
from bcsc.experiments import demo


@pytest.mark.slow
def test_the_demo_shows_its_table_and_writes_its_report(tmp_path: Path, monkeypatch, capsys) -> None:
    quick = {name: replace(spec, epochs=2, subset=200) for name, spec in demo.RUNS.items()}
    monkeypatch.setattr(demo, "RUNS", quick)
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{name} " in printed for name in quick)
    assert printed.strip().endswith(str(tmp_path / "demo" / "report" / "index.html"))
    assert (tmp_path / "demo" / "report" / "index.html").stat().st_size > 100_000
    assert (tmp_path / "demo" / "report" / "other-runs-epochs.png").exists()


def test_the_runs_of_the_demo_compare_at_equal_epochs_and_at_equal_compute() -> None:
    sgd, bcsc, equal = demo.RUNS.values()
    assert sgd.epochs == bcsc.epochs
    assert equal.epochs == bcsc.epochs * bcsc.blocks
    assert equal.lr == pytest.approx(0.1 / bcsc.blocks)
    assert {spec.outliers for spec in demo.RUNS.values()} == {"symmetric:0.15"}
