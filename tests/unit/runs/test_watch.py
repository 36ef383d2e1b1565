"""What a person is told: times in words, a line per epoch, bars that survive any clock."""

import re

import pytest
import torch

from bcsc.runs import watch
from bcsc.runs.watch import LiveWatcher, PlainWatcher, folded_watchers
from bcsc.training.history import EpochRow

ROW = EpochRow(2, 0.1, 1.5, 0.25, 1.25, 62.5, 4000, 30.0, 1234.5)


def test_an_epoch_is_one_line_with_the_time_left_at_this_pace(capsys: pytest.CaptureFixture) -> None:
    PlainWatcher(epochs=5).end_epoch(ROW)
    assert capsys.readouterr().out == (
        "epoch 2/5  rate 0.1  training loss 1.5000 +- 0.2500  test loss 1.2500  "
        "accuracy 62.50 %  1,234 images/s  90 s left\n"
    )


@pytest.mark.parametrize(("estimates", "said"), [([61], 1), ([61, 61], 1), ([60], 0), ([5, 7200], 0)])
def test_a_long_run_is_announced_once(capsys: pytest.CaptureFixture, estimates: list[float], said: int) -> None:
    watcher = PlainWatcher(epochs=1)
    for seconds in estimates:
        watcher.estimate(seconds)
    assert capsys.readouterr().out.count("This will take about 61 s.") == said


@pytest.mark.parametrize("tick", [0.0, 1.0])
def test_the_bars_show_loss_and_rate_whatever_the_clock_does(monkeypatch: pytest.MonkeyPatch, tick: float) -> None:
    clock = iter(1000.0 + tick * i for i in range(1000))
    monkeypatch.setattr(watch.time, "monotonic", lambda: next(clock))
    watcher = LiveWatcher(epochs=2)
    watcher.begin_epoch(epoch=1, step=3, steps=10, samples_per_step=128.0)
    watcher.after_step(torch.tensor(0.5))
    run, epoch = watcher._progress.tasks
    assert epoch.completed == 4
    assert run.completed == pytest.approx(1.4)
    # The clock is read when the epoch begins and twice after a step: 128 images in 2 ticks.
    assert epoch.fields["note"] == ("loss 0.500  64 images/s" if tick else "loss 0.500  0 images/s")


def test_several_runs_have_a_line_per_ten_epochs_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with folded_watchers({"one": 12, "two": 3}) as watchers:
        for name, epochs in (("one", 12), ("two", 3)):
            for epoch in range(1, epochs + 1):
                watchers[name].end_epoch(ROW._replace(epoch=epoch, test_accuracy=50.0))
    assert capsys.readouterr().out.splitlines() == [
        "one: epoch 10/12  accuracy 50.00 %",
        "one: epoch 12/12  accuracy 50.00 %",
        "two: epoch 3/3  accuracy 50.00 %",
    ]


def test_several_runs_have_a_bar_each_and_no_lines_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with folded_watchers({"one": 12, "two": 3}) as watchers:
        for epoch in range(1, 13):
            watchers["one"].end_epoch(ROW._replace(epoch=epoch, test_accuracy=50.0))
        watchers["two"].say("hello")
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", capsys.readouterr().out)
    assert "12/12 accuracy 50.00 %" in shown
    assert "0/3" in shown
    assert "hello" in shown
    assert "epoch" not in shown
