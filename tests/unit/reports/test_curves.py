"""Curves are averages over seeds at each epoch, against any of three axes."""

import math
from pathlib import Path

from bcsc.reports.curves import curves_of, over_seeds
from bcsc.runs.spec import RunSpec
from bcsc.runs.store import read_run
from tests.run_folders import NUM_SAMPLES, write_run


def test_a_curve_is_the_mean_and_the_extremes_over_seeds() -> None:
    curve = over_seeds([[1.0, 2.0], [3.0, 6.0]])
    assert (curve.mean, curve.low, curve.high) == ([2.0, 4.0], [1.0, 2.0], [3.0, 6.0])


def test_it_ends_with_the_shortest_run_and_is_broken_where_a_run_has_diverged() -> None:
    assert over_seeds([[1.0, 2.0, 3.0], [1.0]]).mean == [1.0]
    assert math.isnan(over_seeds([[1.0], [math.nan]]).mean[0])


def test_the_axes_are_epochs_gradient_evaluations_and_seconds(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, RunSpec(epochs=3, blocks=8)))
    curves = curves_of([record])
    assert curves is not None
    assert curves.positions["epochs"] == [1.0, 2.0, 3.0]
    assert curves.positions["gradient_evaluations"] == [8 * NUM_SAMPLES * epoch for epoch in (1, 2, 3)]
    assert curves.positions["seconds"] == [48.0, 96.0, 144.0]


def test_a_run_before_its_first_epoch_has_no_curve(tmp_path: Path) -> None:
    assert curves_of([read_run(write_run(tmp_path, RunSpec(), state="running", epochs_done=0))]) is None
