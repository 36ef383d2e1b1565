"""The paper's figures: a panel per arm, colours and axes as in the paper, and no arm spoils the others' axes."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bcsc.experiments.experiment import Axis
from bcsc.experiments.study import Study, read_studies
from bcsc.reports.curves import curves_of, loss_limits
from bcsc.reports.figures import draw_accuracies, draw_arms, write_figures
from bcsc.runs.spec import RunSpec
from tests.run_folders import explode, write_run, write_study

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'bcsc[report]'")
ARMS = ("AdaGrad", "AdaDelta", "SGD", "SBC M=2", "RBC M=2", "BCSC M=2")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_study(tmp_path, "cifar10", epochs=6, models=["lenet4"], seeds=[0], blocks=[2])


@pytest.fixture
def study(root: Path) -> Study:
    return read_studies(root)[0][0]


def drawn(study: Study):
    return {cell: found for cell, runs in study.runs.items() if (found := curves_of(runs))}


def panels(study: Study, axis: Axis):
    figure = draw_arms(study, drawn(study), axis)
    return figure, [panel for panel in figure.axes if panel.get_title()], [p for p in figure.axes if not p.get_title()]


def test_one_panel_per_arm_with_losses_left_and_accuracy_right(study: Study) -> None:
    figure, left, right = panels(study, "epochs")
    assert [panel.get_title() for panel in left] == [f"{arm}\nLeNet4" for arm in ARMS]
    assert {(panel.get_xscale(), panel.get_yscale()) for panel in left} == {("log", "log")}
    assert {line.get_color() for line in left[0].lines} == {"tab:blue", "tab:red"}
    assert [line.get_color() for line in right[0].lines] == ["tab:green"]
    assert len(left[0].collections) == 1, "the spread of the training loss"
    assert "cut down: 6 of 200 epochs" in figure.get_suptitle()


def test_panels_stand_in_rows_of_three_and_every_network_begins_a_row(tmp_path: Path) -> None:
    ((study,), _) = read_studies(write_study(tmp_path, "outliers", epochs=2, seeds=[0]))
    figure, left, _ = panels(study, "epochs")
    assert len(figure.axes) == 2 * len(left), "no empty panels"
    rows: dict[float, list[str]] = {}
    for panel in left:
        rows.setdefault(round(panel.get_position().y0, 3), []).append(panel.get_title().replace("\n", ": "))
    conditions = ("no outliers", "5 % outliers", "10 % outliers", "15 % outliers")
    expected = []
    for where in conditions:
        expected += [
            [f"{arm}: LeNet4, {where}" for arm in ("SGD", "BCSC M=2", "BCSC M=4")],
            [f"BCSC M=8: LeNet4, {where}"],
        ]
    assert list(rows.values()) == expected


@pytest.mark.parametrize("axis", ["epochs", "gradient_evaluations", "seconds"])
def test_panels_of_a_place_have_the_same_axes_which_hold_every_curve(study: Study, axis: Axis) -> None:
    _, left, right = panels(study, axis)
    for group, limits_of, data_of in (
        (left, "get_ylim", "get_ydata"),
        (right, "get_ylim", "get_ydata"),
        (left, "get_xlim", "get_xdata"),
    ):
        (limits,) = {getattr(panel, limits_of)() for panel in group}
        values = [value for panel in group for line in panel.lines for value in getattr(line, data_of)()]
        assert limits[0] <= min(values) <= max(values) <= limits[1]


def test_an_arm_that_explodes_moves_no_axis_by_more_than_its_reach_and_says_how_far_it_goes(root: Path) -> None:
    _, before, _ = panels(read_studies(root)[0][0], "epochs")
    explode(root / "runs" / "lenet4-adagrad-seed-0")
    explode(root / "runs" / "lenet4-sgd-seed-0", epochs=1)
    _, after, _ = panels(read_studies(root)[0][0], "epochs")
    (usual,), (limits,) = ({panel.get_ylim() for panel in group} for group in (before, after))
    assert limits[0] == pytest.approx(usual[0], rel=0.2)
    assert usual[1] <= limits[1] < 4 * usual[1]
    notes = {panel.get_title(): [text.get_text() for text in panel.texts] for panel in after}
    assert [title for title, texts in notes.items() if texts] == ["AdaGrad\nLeNet4", "SGD\nLeNet4"]
    assert notes["AdaGrad\nLeNet4"][0].startswith("loss up to 1")


def test_a_clock_that_stood_still_leaves_its_axis_empty_and_the_others_alone(study: Study) -> None:
    still = {
        cell: replace(curves, positions={**curves.positions, "seconds": [0.0] * 6})
        for cell, curves in drawn(study).items()
    }
    assert [panel.get_xscale() for panel in draw_accuracies(study, still).axes] == ["log", "log", "linear"]


def test_ticks_fit_side_by_side(study: Study) -> None:
    figure, left, _ = panels(study, "gradient_evaluations")
    figure.canvas.draw()
    for panel in left:
        boxes = [label.get_window_extent() for label in panel.get_xticklabels()]
        assert len(boxes) >= 3
        assert all(first.x1 < second.x0 for first, second in pairwise(boxes))


def test_all_arms_of_a_place_are_also_drawn_in_one_panel_against_every_axis(study: Study) -> None:
    figure = draw_accuracies(study, drawn(study))
    assert [panel.get_xlabel() for panel in figure.axes] == ["epochs", "gradient evaluations", "seconds"]
    assert [[line.get_label() for line in panel.lines] for panel in figure.axes] == [list(ARMS)] * 3
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(ARMS)


def test_an_arm_that_guesses_where_the_others_hardly_err_is_named_below_the_axis(tmp_path: Path) -> None:
    def accuracy(spec: RunSpec, epoch: int) -> float:
        return 10.0 if spec.method == "sgd" else 96.0 + epoch

    ((study,), _) = read_studies(write_study(tmp_path, "cifar10-deep", accuracy=accuracy, epochs=3, seeds=[0]))
    (first, *_) = draw_accuracies(study, drawn(study)).axes
    assert first.get_ylim()[0] > 80
    assert [text.get_text() for text in first.texts] == ["SGD: down to 10"]


@pytest.mark.parametrize("length", [10, 35, 80])
def test_the_legend_fits_the_figure(tmp_path: Path, length: int) -> None:
    for seed in range(4):
        write_run(tmp_path / str(seed), RunSpec(epochs=2, optimizer=f"{seed}" * length))
    ((study,), _) = read_studies(tmp_path)
    figure = draw_accuracies(study, drawn(study))
    figure.canvas.draw()
    box, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert box.x0 >= 0
    assert box.x1 <= whole.x1
    assert all(box.y1 < panel.get_tightbbox().y0 for panel in figure.axes)


@pytest.mark.slow
def test_figures_are_written_whole_and_the_same_bytes_each_time(study: Study, tmp_path: Path) -> None:
    suffixes = ("png", "pdf", "svg")
    contents = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        written = write_figures(study, "six", tmp_path / name, suffixes)
        contents.append({path.name: path.read_bytes() for path in written})
    assert contents[0] == contents[1]
    assert set(contents[0]) == {
        f"six-{figure}.{suffix}"
        for figure in ("accuracy", "epochs", "gradient-evaluations", "seconds")
        for suffix in suffixes
    }
    for name, content in contents[0].items():
        assert content.startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[name.rpartition(".")[2]])
        assert b"Date" not in content


def test_a_study_whose_runs_have_not_begun_has_no_figures(tmp_path: Path) -> None:
    study = read_studies(write_study(tmp_path, "cifar10", epochs=2, models=["lenet4"], seeds=[0], blocks=[2]))[0][0]
    empty = Study(**{**vars(study), "runs": dict.fromkeys(study.runs, ())})
    assert write_figures(empty, "none", tmp_path, ["png"]) == []
    assert loss_limits([]) is None
