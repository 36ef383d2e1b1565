"""A run that is killed or interrupted anywhere ends with the weights and the measurements of an unbroken one."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from bcsc.errors import UnsupportedOptimizerError
from bcsc.optim.methods import METHODS
from bcsc.runs.spec import spec_from_toml
from bcsc.training.checkpoint import read_checkpoint
from bcsc.training.history import MEASURED_BY_THE_CLOCK, EpochRow
from bcsc.training.watcher import Watcher
from tests.unit.runs import tiny_run


def weights(folder: Path) -> dict:
    return read_checkpoint(folder / "checkpoint.pt")["model"]


def measurements(folder: Path) -> list[dict]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in MEASURED_BY_THE_CLOCK} for row in rows]


def assert_same_run(one: Path, other: Path) -> None:
    assert measurements(one) == measurements(other)
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def assert_all_readable(folder: Path) -> None:
    for path in folder.iterdir():
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.name == "metrics.jsonl":
            measurements(folder)
        elif path.name == "run.toml":
            spec_from_toml(path.read_text(), "run.toml")
        elif path.suffix == ".pt":
            read_checkpoint(path)


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    from tests.kills import kill_and_compare  # which compares runs as this file does

    outcome = kill_and_compare(tmp_path, 20)
    assert outcome.kills >= 20
    assert outcome.runs >= 10


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_continues_exactly_after_an_interruption(tmp_path: Path, method: str, monkeypatch) -> None:
    check_continuation(tmp_path, monkeypatch, 2 if method == "bcd" else 5, method=method)


@pytest.mark.parametrize("steps", [5, 40])
def test_an_optimizer_that_keeps_a_count_among_its_options_continues_exactly(tmp_path, steps: int, monkeypatch) -> None:
    check_continuation(tmp_path, monkeypatch, steps, optimizer="tests.odd_optimizers:Counting", mask="update")


@pytest.mark.parametrize("steps", [5, 28, 40])  # 28 are an epoch, after which the weights to evaluate are in place
@pytest.mark.parametrize("mask", ["gradient", "all"])
def test_a_schedule_free_optimizer_continues_exactly(tmp_path, mask: str, steps: int, monkeypatch) -> None:
    pytest.importorskip("schedulefree")
    monkeypatch.setattr(nn, "BatchNorm2d", lambda _width: nn.Identity())
    settings = {"optimizer": "schedulefree:SGDScheduleFree", "mask": mask, "schedule": "constant"}
    check_continuation(tmp_path, monkeypatch, steps, **settings)


def test_a_run_that_ended_an_epoch_with_the_weights_to_evaluate_is_continued_exactly(tmp_path, monkeypatch) -> None:
    pytest.importorskip("schedulefree")
    monkeypatch.setattr(nn, "BatchNorm2d", lambda _width: nn.Identity())
    settings = {"optimizer": "schedulefree:SGDScheduleFree", "mask": "all", "schedule": "constant"}
    tiny_run.train(tmp_path / "whole", epochs=2, **settings)
    with pytest.raises(KeyboardInterrupt):
        tiny_run.train(tmp_path / "broken", epochs=2, watcher=StopsAfterAnEpoch(), **settings)
    state = read_checkpoint(tmp_path / "broken" / "checkpoint.pt")
    assert not state["optimizer"]["param_groups"][0]["train_mode"]
    tiny_run.train(tmp_path / "broken", epochs=2, **settings)
    assert_same_run(tmp_path / "broken", tmp_path / "whole")


class StopsAfterAnEpoch(Watcher):
    def end_epoch(self, row: EpochRow) -> None:
        raise KeyboardInterrupt


def test_where_other_weights_are_evaluated_than_trained_batch_norm_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("schedulefree")
    with pytest.raises(UnsupportedOptimizerError, match="Take a network without BatchNorm"):
        tiny_run.train(tmp_path / "run", optimizer="schedulefree:SGDScheduleFree", mask="all")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def check_continuation(root: Path, monkeypatch: pytest.MonkeyPatch, steps: int, **settings: str) -> None:
    """After an interruption after so many steps."""
    from bcsc.errors import Interrupted
    from bcsc.runs import recorder

    tiny_run.train(root / "whole", epochs=2, checkpoint_every=None, **settings)
    questions = iter([False] * steps + [True])
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "stop_asked_by_signal", lambda: _Answers(questions))
        with pytest.raises(Interrupted, match="all of it is saved"):
            tiny_run.train(root / "broken", epochs=2, checkpoint_every=None, **settings)
    assert json.loads((root / "broken" / "summary.json").read_text())["state"] == "interrupted"
    origin = json.loads((root / "broken" / "origin.json").read_text())
    (root / "broken" / "origin.json").write_text(json.dumps({**origin, "started": "2020-01-01T00:00:00+00:00"}))
    tiny_run.train(root / "broken", epochs=2, checkpoint_every=None, **settings)
    origin = json.loads((root / "broken" / "origin.json").read_text())
    assert (origin["started"], origin["resumed"]) == ("2020-01-01T00:00:00+00:00", 1)
    assert_same_run(root / "broken", root / "whole")


class _Answers:
    """Answers "stop?" from a list."""

    def __init__(self, answers) -> None:
        self.answers = answers

    def __enter__(self):
        return lambda: next(self.answers)

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_says_how_to_go_on_and_exits_130(tmp_path: Path, number: int) -> None:
    options = ["--data", "digits", "--epochs", "3", "--threads", "1", "--subset", "800"]
    command = [sys.executable, "-m", "bcsc", "train", *options, "--out"]
    with subprocess.Popen(
        [*command, str(tmp_path / "broken")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline().startswith(("epoch 1/3", "This will take"))
        process.send_signal(number)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "The same command goes on from there" in errors
    assert "Traceback" not in errors
    again = subprocess.run([*command, str(tmp_path / "broken")], capture_output=True, text=True, check=True)
    assert "Continuing" in again.stdout
    subprocess.run([*command, str(tmp_path / "whole")], capture_output=True, check=True)
    assert_same_run(tmp_path / "broken", tmp_path / "whole")
