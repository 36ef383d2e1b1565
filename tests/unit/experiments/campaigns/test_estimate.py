"""An estimate counts the images that a run has to see."""

from dataclasses import replace

import pytest

from bcsc.experiments.campaigns.estimate import (
    COSTS,
    estimate_seconds,
    measured_seconds_per_image,
    tabled_seconds_per_image,
)
from bcsc.models import MODELS
from bcsc.runs.spec import RunSpec

SGD = RunSpec(method="sgd", epochs=2)


def per_image(_model: str, _data: str) -> float:
    return 0.001


def test_an_epoch_is_the_training_set_forward_and_back_and_the_test_set_forward() -> None:
    assert estimate_seconds(SGD, per_image) == pytest.approx(2 * (50 + 10 / 3))


@pytest.mark.parametrize(
    ("method", "passes"), [("bcsc", 8), ("sbc", 8), ("sbc-one-pass", 1), ("one-pass", 1), ("sgd", 1)]
)
def test_methods_with_blocks_pay_for_each_of_them(method: str, passes: int) -> None:
    seconds = estimate_seconds(replace(SGD, method=method, blocks=8), per_image)
    assert seconds == pytest.approx(2 * (50 * passes + 10 / 3))


def test_a_subset_costs_as_much_as_it_holds() -> None:
    assert estimate_seconds(replace(SGD, subset=1000), per_image) == pytest.approx(2 * (1 + 10 / 3))
    assert estimate_seconds(replace(SGD, subset=10**6), per_image) == estimate_seconds(SGD, per_image)


def test_a_network_is_timed_once() -> None:
    seconds = measured_seconds_per_image("lenet4", "digits")
    assert 0 < seconds < 1
    assert measured_seconds_per_image("lenet4", "digits") == seconds


def test_the_table_has_every_network_and_scales_the_speed_of_lenet4() -> None:
    assert set(COSTS) == set(MODELS)
    lenet4 = measured_seconds_per_image("lenet4", "digits")
    assert tabled_seconds_per_image("lenet4", "digits") == lenet4
    assert tabled_seconds_per_image("vgg19", "digits") == pytest.approx(450 * lenet4)
