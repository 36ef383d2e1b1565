"""The paper's staircase, and the other schedules."""

import pytest

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
