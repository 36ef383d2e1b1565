"""``bcsc reproduce`` and ``bcsc report``: from nothing to a report, and nothing twice."""

import json
from pathlib import Path

import pytest

from bcsc.cli import main
from bcsc.experiments.campaigns import estimate
from bcsc.experiments.catalog import EXPERIMENTS
from bcsc.experiments.planning.plan_file import read_plan
from tests.fake_trainer import InThisProcess

SMALL = ("--models", "lenet4", "--epochs", "2", "--seeds", "0", "--blocks", "2")


pytestmark = pytest.mark.usefixtures("quick_campaigns")


def test_one_command_goes_from_nothing_to_a_report_and_again_does_no_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "cifar10", *SMALL, "--out", str(tmp_path)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "Six methods on CIFAR-10: 6 runs, cut down: 2 of 200 epochs" in out
    assert "6 finished\n" in out
    assert out.rstrip().endswith(f"report: {tmp_path / 'report' / 'index.html'}")
    assert "6 of 6" not in (tmp_path / "report" / "cifar10.md").read_text()
    assert main(command) == 0
    assert "6 finished before" in capsys.readouterr().out
    assert len((tmp_path / "runs" / "starts.txt").read_text().splitlines()) == 6


def test_more_seeds_go_on_in_the_same_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "cifar10", *SMALL, "--out", str(tmp_path)])
    assert main(["reproduce", "cifar10", *SMALL, "--seeds", "0,1", "--out", str(tmp_path)]) == 0
    assert "6 finished before, 6 finished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["cifar10", "--epochs", "3"], "epochs was 2, is 3"),
        (["cifar10", "--subset", "9"], "subset was None, is 9"),
        (["outliers"], "the experiment was cifar10, is outliers"),
    ],
)
def test_a_folder_with_other_runs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: list[str], message: str
) -> None:
    main(["reproduce", "cifar10", *SMALL, "--out", str(tmp_path)])
    before = json.loads((tmp_path / "experiment.json").read_text())
    assert main(["reproduce", *change[:1], *SMALL, *change[1:], "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert json.loads((tmp_path / "experiment.json").read_text()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce"], "Name an experiment, one of blocks, outliers"),
        (["reproduce", "cifar11"], "The experiment must be one of"),
        (
            ["reproduce", "cifar10", "--models", "alexnet"],
            "A network must be one of lenet4, vgg19, googlenet, resnet18",
        ),
        (["reproduce", "--list", "--models", "vgg11"], "got 'vgg11'. Did you mean 'vgg19'"),
        (["reproduce", "cifar10", "--seeds", "a"], "argument --seeds: expected whole numbers such as 0,1,2, got 'a'"),
        (["reproduce", "cifar10", "--seeds", ","], "argument --seeds: expected"),
        (["reproduce", "cifar10", "--models", ","], "argument --models: expected names"),
        (["reproduce", "cifar10", "--subset", "50001", "--out", "{}/new"], "subset must be from 1 to the 50000"),
        (["reproduce", "cifar10", "--out", "{}/file"], "file is a file. Give --out another folder."),
        (["report", "no-such-folder"], "no-such-folder is not a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "file").touch()
    assert main([word.format(tmp_path) for word in words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_run_is_exit_code_1_and_the_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.fake_trainer.write_run", lambda *_args, **_options: None)
    monkeypatch.setattr(InThisProcess, "carry_out", lambda _self, jobs: iter_failures(jobs))
    assert main(["reproduce", "cifar10", *SMALL, "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "6 failed" in out
    assert "retry: train lenet4-bcsc-m-2-seed-0" in out
    assert "0 of 6 runs finished" in (tmp_path / "report" / "cifar10.md").read_text()


def iter_failures(jobs):
    yield from ([(job, 2)] for job in jobs)


def test_an_interruption_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_self, _jobs):
        yield []
        raise KeyboardInterrupt

    monkeypatch.setattr(InThisProcess, "carry_out", interrupted)
    assert main(["reproduce", "cifar10", *SMALL, "--out", str(tmp_path)]) == 130
    assert "the same command continues where it stopped" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "per_image"), [([], "tabled"), (["--time"], "measured")])
def test_the_list_shows_every_experiment_with_its_runs_and_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], per_image: str
) -> None:
    monkeypatch.setattr(estimate, f"{per_image}_seconds_per_image", lambda _model, _data: 60.0)
    monkeypatch.setattr(estimate, "estimate_seconds", lambda _spec, per_image: per_image("lenet4", "cifar10"))
    assert main(["reproduce", "--list", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 8 + 1
    assert lines[1].split()[:5] == ["blocks", "45", "45", "min", "Does"]


def test_the_list_takes_cuts_and_times_lenet4_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "cifar10", "--models", "vgg19", "--epochs", "1"]) == 0
    assert "(cut down: 1 of 200 epochs, 1 of 3 networks)" in capsys.readouterr().out


def test_report_reads_any_folder_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "cifar10", *SMALL, "--out", str(tmp_path / "deep" / "down")])
    assert main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(f"report: {tmp_path / 'report' / 'index.html'}\n")


def test_a_plan_is_shown_as_a_start_for_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--show", "outliers"]) == 0
    plan = tmp_path / "outliers.toml"
    plan.write_text(capsys.readouterr().out)
    assert read_plan(plan)[0] == EXPERIMENTS["outliers"]


def test_the_arms_and_conditions_to_run_can_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--arms", "SGD", "BCSC M=8", "--conditions", "no outliers", "--epochs", "2", "--seeds", "0"]
    assert main(["reproduce", "outliers", *words, "--out", str(tmp_path)]) == 0
    assert "2 runs, cut down: 2 of 200 epochs, 1 of 3 seeds, 1 of 4 conditions, 2 of 4 arms" in capsys.readouterr().out
    assert main(["report", str(tmp_path)]) == 0


def test_a_network_outside_the_plan_is_run_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "adagrad", *SMALL, "--out", str(tmp_path)]) == 0
    assert "LeNet4 (planned: VGG19, ResNet18)" in capsys.readouterr().out
    assert "LeNet4 (planned: VGG19, ResNet18)" in (tmp_path / "report" / "adagrad.md").read_text()
