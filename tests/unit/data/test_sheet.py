"""A contact sheet marks what was corrupted, and says what it was."""

from pathlib import Path
from typing import Any

import pytest

from bcsc.data.dataset import load
from bcsc.data.outliers import Outliers
from bcsc.data.sheet import COLUMNS, ROWS, draw_sheet

figures = pytest.importorskip("matplotlib.figure")


def test_red_frames_are_outliers_and_the_true_label_stands_below(tmp_path: Path, monkeypatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    clean = load("digits")
    corrupted = clean.with_outliers(Outliers.parse("symmetric:0.3"))
    chosen = draw_sheet(corrupted, clean.train_labels, tmp_path / "sheet.png").tolist()
    outliers = set(corrupted.corruption.indices.tolist())
    (figure,) = drawn
    assert len(figure.axes) == len(chosen) == ROWS * COLUMNS
    assert 0 < sum(index in outliers for index in chosen) < len(chosen)
    for axes, index in zip(figure.axes, chosen, strict=True):
        given, true = (str(int(labels[index])) for labels in (corrupted.train_labels, clean.train_labels))
        is_red = axes.spines["left"].get_edgecolor() == (1, 0, 0, 1)
        assert is_red == (index in outliers)
        assert axes.get_title() == (f"{given}\n({true})" if index in outliers else given)
