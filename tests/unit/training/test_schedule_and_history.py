"""The paper's staircase and the columns of its tables."""

import pytest
import torch

from bcsc.training.history import EpochRow, accuracy_summary, mean_and_deviation, per_second
from bcsc.training.schedule import learning_rate


def test_the_staircase_is_the_papers() -> None:
    rates = [learning_rate("staircase", 0.1, epoch - 1, 200) for epoch in range(1, 201)]
    assert rates[:100] == [0.1] * 100
    assert rates[100:150] == [0.01] * 50
    assert rates[150:] == [0.001] * 50


def test_the_staircase_scales_with_the_epochs() -> None:
    rates = [learning_rate("staircase", 0.1, epoch, 8) for epoch in range(8)]
    assert rates == [0.1] * 4 + [0.01] * 2 + [0.001] * 2


def test_constant_and_cosine() -> None:
    assert {learning_rate("constant", 0.1, epoch, 9) for epoch in range(9)} == {0.1}
    rates = [learning_rate("cosine", 0.1, epoch, 10) for epoch in range(10)]
    assert rates[0] == 0.1
    assert rates[5] == pytest.approx(0.05)
    assert rates == sorted(rates, reverse=True)


def rows(accuracies: list[float]) -> list[EpochRow]:
    return [EpochRow(i + 1, 0.1, 1.0, 0.1, 1.0, accuracy, 1, 1.0, 1.0) for i, accuracy in enumerate(accuracies)]


def test_the_summary_has_the_columns_of_the_papers_tables() -> None:
    assert accuracy_summary(rows([10.0, 20.0, 60.0, 50.0]), epochs=4) == {
        "first_half": 15.0,
        "last_half": 55.0,
        "all": 35.0,
        "final": 50.0,
        "best": 60.0,
    }
    assert accuracy_summary([], epochs=4) is None
    assert accuracy_summary(rows([30.0]), epochs=1)["last_half"] == 30.0


def test_the_deviation_is_over_the_mini_batches() -> None:
    mean, deviation = mean_and_deviation([torch.tensor(1.0), torch.tensor(3.0)])
    assert (mean, deviation) == (2.0, 1.0)


def test_a_clock_that_stands_still_measures_no_rate() -> None:
    assert per_second(100, 4.0) == 25.0
    assert per_second(100, 0.0) == 0.0
