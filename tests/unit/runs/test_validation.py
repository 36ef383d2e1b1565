"""A run with held-out samples never sees the test set."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bcsc.data.dataset import DataSet, load
from bcsc.runs import build
from bcsc.runs.run import run
from bcsc.runs.spec import RunSpec
from bcsc.training.history import MEASURED_BY_THE_CLOCK

SPEC = RunSpec(data="digits", method="sgd", epochs=2, subset=400, validation=100, threads=1)


def poisoned(name: str, **options: object) -> DataSet:
    dataset = load(name)
    return replace(dataset, test_images=255 - dataset.test_images, test_labels=(dataset.test_labels + 1) % 10)


def measured(spec: RunSpec, folder: Path) -> list[dict[str, float]]:
    rows = [row._asdict() for row in run(spec, folder).history]
    return [{name: value for name, value in row.items() if name not in MEASURED_BY_THE_CLOCK} for row in rows]


def test_its_metrics_are_the_same_whatever_the_test_set_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured(SPEC, tmp_path / "a")
    tested = measured(replace(SPEC, validation=None), tmp_path / "b")
    monkeypatch.setattr(build, "load", poisoned)
    assert measured(SPEC, tmp_path / "c") == rows
    assert measured(replace(SPEC, validation=None), tmp_path / "d") != tested


def test_it_trains_on_the_others_and_measures_on_the_held_out() -> None:
    dataset = build.load_data(SPEC)
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (300, 100)
    whole = build.load_data(replace(SPEC, validation=None))
    assert torch.equal(
        torch.cat([dataset.train_labels, dataset.test_labels]).sort().values, whole.train_labels.sort().values
    )
