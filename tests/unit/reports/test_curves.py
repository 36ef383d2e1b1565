"""Curves are averages over seeds at each epoch, against any of three axes."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.reports.curves import (
    REACH,
    Curve,
    accuracy_limits,
    curves_of,
    log_ticks,
    loss_limits,
    over_seeds,
    short,
    spread_around,
    usual_top,
)
from bcsc.runs.folder import RunFolder
from bcsc.runs.spec import RunSpec
from tests.run_folders import NUM_SAMPLES, write_run


def test_a_curve_is_the_mean_and_the_extremes_over_seeds() -> None:
    curve = over_seeds([[1.0, 2.0], [3.0, 6.0]])
    assert (curve.mean, curve.low, curve.high) == ([2.0, 4.0], [1.0, 2.0], [3.0, 6.0])


def test_it_ends_with_the_shortest_run_and_is_broken_where_a_run_has_diverged() -> None:
    assert over_seeds([[1.0, 2.0, 3.0], [1.0]]).mean == [1.0]
    assert math.isnan(over_seeds([[1.0], [math.nan]]).mean[0])


def test_the_axes_are_epochs_gradient_evaluations_and_seconds(tmp_path: Path) -> None:
    record = RunFolder(write_run(tmp_path, RunSpec(epochs=3, blocks=8))).read()
    curves = curves_of([record])
    assert curves is not None
    assert curves.positions["epochs"] == [1.0, 2.0, 3.0]
    assert curves.positions["gradient_evaluations"] == [8 * NUM_SAMPLES * epoch for epoch in (1, 2, 3)]
    assert curves.positions["seconds"] == [48.0, 96.0, 144.0]


def test_a_run_before_its_first_epoch_has_no_curve(tmp_path: Path) -> None:
    assert curves_of([RunFolder(write_run(tmp_path, RunSpec(), state="running", epochs_done=0)).read()]) is None


def test_finished_seeds_are_not_cut_short_by_one_that_diverged_or_is_on_its_way(tmp_path: Path) -> None:
    runs = [
        RunFolder(write_run(tmp_path / "a", RunSpec(epochs=3))).read(),
        RunFolder(write_run(tmp_path / "b", RunSpec(epochs=3, seed=1), state="running", epochs_done=1)).read(),
        RunFolder(write_run(tmp_path / "c", RunSpec(epochs=3, seed=2), state="diverged", epochs_done=1)).read(),
    ]
    curves = curves_of(runs)
    assert curves is not None
    assert (curves.num_seeds, curves.positions["epochs"]) == (1, [1.0, 2.0, 3.0])
    begun = curves_of(runs[1:])
    assert begun is not None
    assert (begun.num_seeds, begun.positions["epochs"]) == (2, [1.0])


POSITIVE = st.floats(1e-3, 1e3)


@given(st.lists(st.lists(POSITIVE, min_size=1, max_size=20), min_size=1, max_size=6))
def test_limits_lie_within_the_curves_and_hold_the_whole_of_half_of_them_but_for_spikes(
    lines: list[list[float]],
) -> None:
    limits = loss_limits(lines)
    assert limits is not None
    low, high = limits
    assert min(map(min, lines)) <= low <= high <= max(map(max, lines))
    within = [line for line in lines if usual_top(line) <= high]
    assert len(within) >= len(lines) / 2


@given(
    st.lists(st.floats(0.1, 3), min_size=4, max_size=30).map(lambda values: sorted(values, reverse=True)),
    st.floats(1e9, 1e30),
)
def test_neither_a_method_nor_an_epoch_that_explodes_changes_the_limits_much(line: list[float], factor: float) -> None:
    usual = loss_limits([line, line, line])
    exploding = [factor * value for value in line]
    with_explosion = loss_limits([line, line, exploding])
    assert usual is not None
    assert with_explosion is not None
    assert with_explosion[1] <= REACH * usual[1]
    assert usual_top([factor * line[0], *line * 4]) <= 1e7


def test_a_flat_loss_is_shown_with_a_start_a_little_above_it() -> None:
    assert loss_limits([[2.3, 2.0, 2.0, 2.0, 2.0, 2.0]]) == (2.0, 2.3)


def test_an_axis_reaches_down_four_decades_and_no_further() -> None:
    assert loss_limits([[1.0, 1e-3]]) == (1e-3, 1.0)
    assert loss_limits([[1.0, 1e-9]]) == (1e-4, 1.0)


def test_the_spread_stops_at_zero() -> None:
    assert spread_around([3.0, 3.5], [1.0, 27.0]) == Curve([3.0, 3.5], [2.0, 0.0], [4.0, 30.5])


def test_a_loss_that_only_falls_is_shown_from_its_start() -> None:
    falling = [2.3 * 0.8**epoch for epoch in range(40)]
    assert loss_limits([falling]) == (falling[-1], 2.3)


def test_accuracies_are_shown_whole_unless_one_guesses_where_the_others_hardly_err() -> None:
    usual = [[30.0, 60.0, 75.0], [10.0, 50.0, 70.0], [10.0, 10.0, 10.0]]
    assert accuracy_limits(usual) == (10.0, 75.0)
    digits = [[95.0, 98.0, 99.0], [96.0, 98.5, 99.2], [10.0, 10.0, 10.0]]
    limits = accuracy_limits(digits)
    assert limits is not None
    assert 80.0 < limits[0] < 95.0
    assert limits[1] == 99.2
    assert accuracy_limits([[100.0, 100.0]]) == (100.0, 100.0)
    assert accuracy_limits([[math.nan]]) is None


def test_a_loss_may_be_as_large_as_a_float() -> None:
    assert loss_limits([[1e-300, 1e300, 1.7e308]]) is not None


@given(POSITIVE, st.floats(1.05, 1e12))
def test_ticks_lie_within_the_axis_and_are_neither_many_nor_more_than_one_may_read(low: float, ratio: float) -> None:
    ticks = log_ticks(low, low * ratio)
    assert all(low <= tick <= low * ratio for tick in ticks)
    assert ticks == sorted(ticks)
    assert len(ticks) <= 8
    assert ratio < 6 or len(ticks) >= 3


@pytest.mark.parametrize(("number", "text"), [(0.7, "0.7"), (30, "30"), (1500, "1.5k"), (3e6, "3M"), (2e9, "2G")])
def test_long_numbers_are_shortened(number: float, text: str) -> None:
    assert short(number) == text
