"""Writes run folders in the trainer's format with curves that depend on the spec alone, without training."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bcsc.experiments.catalog import EXPERIMENTS, cut_down
from bcsc.experiments.study import Study, study_of, write_experiment
from bcsc.runs.folder import RunFolder
from bcsc.runs.record import RunRecord, RunState, Summary, summarise
from bcsc.runs.spec import RunSpec
from bcsc.training.history import EpochRow, accuracy_summary

NUM_SAMPLES = 50_000
ORIGIN = {
    "bcsc": "0.1.0",
    "commit": "0123abc",
    "python": "3.11.7",
    "torch": "2.13.0",
    "numpy": "2.4.6",
    "platform": "Linux-x86_64",
    "device": "cpu",
    "threads": 2,
    "started": "2026-01-01T10:00:00+00:00",
    "ended": "2026-01-01T11:00:00+00:00",
    "resumed": 0,
}

Accuracy = Callable[[RunSpec, int], float]


def plausible_accuracy(spec: RunSpec, epoch: int) -> float:
    """Rises to a plateau, faster with more blocks, with a step at the half; a little luck by seed and epoch."""
    share = epoch / spec.epochs
    speed = 1 + 0.6 * math.log2(passes(spec))
    plateau = 74.0 + (2.5 if share > 0.5 else 0.0)
    lost = 12.0 * float(spec.outliers.rpartition(":")[2]) if ":" in spec.outliers else 0.0
    luck = 0.4 * math.sin(7.0 * spec.seed + 3.0 * epoch + len(spec.method))
    return plateau - lost / speed - 35.0 * math.exp(-4.0 * speed * share) + luck


def passes(spec: RunSpec) -> int:
    return 1 if spec.method == "sgd" else spec.blocks


def metrics(spec: RunSpec, epoch: int, accuracy: Accuracy) -> dict[str, float]:
    percent = accuracy(spec, epoch)
    seconds = 6.0 * passes(spec) + 0.1 * spec.seed
    seen = (spec.subset or NUM_SAMPLES) * passes(spec)
    return {
        "epoch": epoch,
        "learning_rate": 0.1 if epoch <= spec.epochs / 2 else 0.01,
        "train_loss": 2.4 * (1 - percent / 110),
        "train_loss_std": (0.12 + 0.2 / epoch) * (1 - percent / 200),
        "test_loss": 2.5 * (1 - percent / 105),
        "test_accuracy": percent,
        "gradient_evaluations": seen * epoch,
        "seconds": seconds,
        "images_per_second": seen / seconds,
    }


def rows_of(spec: RunSpec, done: int, accuracy: Accuracy) -> list[EpochRow]:
    return [EpochRow(**metrics(spec, epoch, accuracy)) for epoch in range(1, done + 1)]


def write_run(
    path: Path,
    spec: RunSpec,
    *,
    epochs_done: int | None = None,
    state: RunState = "finished",
    accuracy: Accuracy = plausible_accuracy,
) -> Path:
    """A run folder as ``bcsc train`` would leave it."""
    done = spec.epochs if epochs_done is None else epochs_done
    rows = rows_of(spec, done, accuracy)
    path.mkdir(parents=True, exist_ok=True)
    folder = RunFolder(path)
    folder.write_spec(spec)
    folder.write_rows(rows)
    folder.write_summary(summarise(spec, rows, state))
    folder.write_origin(ORIGIN)
    return path


def write_study(root: Path, name: str, *, accuracy: Accuracy = plausible_accuracy, **cut: Any) -> Path:
    """Every run of an experiment, cut down, as ``bcsc reproduce`` would leave them."""
    experiment = cut_down(EXPERIMENTS[name], **cut)
    write_experiment(root, name, cut)
    for run in experiment.runs():
        write_run(root / "runs" / run.name, run.spec, accuracy=accuracy)
    return root


def study_in_memory(name: str, accuracy: Accuracy, **cut: Any) -> Study:
    """The study that ``write_study`` would write, without files."""
    experiment = cut_down(EXPERIMENTS[name], **cut)
    return study_of(experiment, [finished_record(run.spec, accuracy) for run in experiment.runs()])


def finished_record(spec: RunSpec, accuracy: Accuracy) -> RunRecord:
    rows = tuple(rows_of(spec, spec.epochs, accuracy))
    summary = Summary(
        state="finished",
        epochs=spec.epochs,
        epochs_done=spec.epochs,
        test_accuracy=accuracy_summary(rows, spec.epochs),
        gradient_evaluations=0,
        seconds=1.0,
        outliers=None,
        message=None,
    )
    return RunRecord(Path("nowhere"), spec, rows, summary, {})


def explode(path: Path, factor: float = 1e6, *, epochs: int | None = None) -> None:
    """Multiply the losses of a run, in its first epochs or in all."""
    folder = RunFolder(path)
    record = folder.read()
    rows = [exploded(row, factor) for row in record.rows[:epochs]]
    rows += record.rows[len(rows) :]
    folder.write_rows(rows)
    folder.write_summary(summarise(record.spec, rows, record.summary.state))


def exploded(row: EpochRow, factor: float) -> EpochRow:
    return row._replace(
        train_loss=factor * row.train_loss,
        train_loss_std=factor * row.train_loss_std,
        test_loss=factor * row.test_loss,
    )
