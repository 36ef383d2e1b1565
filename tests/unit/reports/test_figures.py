"""The paper's figures: a panel per arm, colours and axes as in the paper."""

from pathlib import Path

import pytest

from bcsc.experiments.study import Study, read_studies
from bcsc.reports.curves import curves_of
from bcsc.reports.figures import draw, write_figures
from tests.run_folders import write_study

pytest.importorskip("matplotlib", reason="figures need matplotlib: pip install 'bcsc[report]'")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return read_studies(write_study(tmp_path, "cifar10", epochs=6, models=["lenet4"], seeds=[0], blocks=[2]))[0][0]


def panels(study: Study, axis: str):
    curves = {cell: found for cell, runs in study.runs.items() if (found := curves_of(runs))}
    figure = draw(study, curves, axis)
    return figure, [panel for panel in figure.axes if panel.get_title()], [p for p in figure.axes if not p.get_title()]


def test_one_panel_per_arm_with_losses_left_and_accuracy_right(study: Study) -> None:
    figure, left, right = panels(study, "epochs")
    assert [panel.get_title() for panel in left] == [
        f"{arm}\nLeNet4" for arm in ("AdaGrad", "AdaDelta", "SGD", "SBC M=2", "RBC M=2", "BCSC M=2")
    ]
    assert {panel.get_xscale() for panel in left} == {"log"}
    assert [line.get_color() for line in left[0].lines] == ["tab:blue", "tab:red"]
    assert [line.get_color() for line in right[0].lines] == ["tab:green"]
    assert len(left[0].collections) == 1, "the spread of the training loss"
    assert "cut down: 6 of 200 epochs" in figure.get_suptitle()


def test_panels_of_a_row_share_axes_that_hold_every_curve(study: Study) -> None:
    _, left, right = panels(study, "gradient_evaluations")
    for group, quantity in ((left, 1), (right, 0)):
        (limits,) = {panel.get_ylim() for panel in group}
        values = [value for panel in group for value in panel.lines[quantity].get_ydata()]
        assert limits[0] <= min(values) <= max(values) <= limits[1]


@pytest.mark.slow
def test_every_axis_is_written_as_png_and_pdf(study: Study, tmp_path: Path) -> None:
    written = write_figures(study, tmp_path)
    assert {path.name for path in written} == {
        f"cifar10-{axis}.{suffix}"
        for axis in ("epochs", "gradient-evaluations", "seconds")
        for suffix in ("png", "pdf")
    }
    for path in written:
        assert path.read_bytes().startswith({".png": b"\x89PNG", ".pdf": b"%PDF"}[path.suffix])
