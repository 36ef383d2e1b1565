"""The paper's comparison on the real CIFAR-10, cut down: from nothing to a report in one command."""

import shutil
from pathlib import Path

import pytest

from bcsc.cli import main
from bcsc.data.dataset import data_root
from bcsc.data.registry import find_source

COMMAND = [
    "reproduce",
    "cifar10",
    "--models",
    "lenet4",
    "--epochs",
    "1",
    "--subset",
    "256",
    "--seeds",
    "0",
    "--blocks",
    "2",
]
METHODS = ("adagrad", "adadelta", "sgd", "sbc", "rbc", "bcsc")


@pytest.mark.slow
def test_one_command_from_nothing_to_the_report_and_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_source("cifar10").missing(data_root()):
        pytest.skip(f"the files of cifar10 are not in {data_root()}: set BCSC_DATA or run `bcsc data get cifar10`")
    command = [*COMMAND, "--jobs", "1", "--out", str(tmp_path)]
    assert main(command) == 0
    runs = sorted(path.parent for path in tmp_path.rglob("run.toml"))
    assert len(runs) == len(METHODS)
    assert all(any(method in run.name for run in runs) for method in METHODS)
    assert "Cut down: 1 of 200 epochs" in (tmp_path / "report" / "cifar10.md").read_text()
    assert "cut down: 1 of 200 epochs" in (tmp_path / "report" / "index.html").read_text()

    stamps = {run: (run / "checkpoint.pt").stat().st_mtime_ns for run in runs}
    shutil.rmtree(runs[0])
    summary = runs[1] / "summary.json"
    summary.write_text(summary.read_text()[:40])
    capsys.readouterr()
    assert main(command) == 0
    redone = [run for run in runs if (run / "checkpoint.pt").stat().st_mtime_ns != stamps[run]]
    assert redone == runs[:2]

    stamps = {run: (run / "checkpoint.pt").stat().st_mtime_ns for run in runs}
    assert main(command) == 0
    assert all((run / "checkpoint.pt").stat().st_mtime_ns == stamp for run, stamp in stamps.items())
