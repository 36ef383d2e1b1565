"""Multiply-adds, counted by hand where short and against PyTorch's own counter elsewhere."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bcsc.models import MODELS, build, count_multiply_adds


def test_lenet4_multiplies_as_often_as_its_widths_say():
    convolutions = 28 * 28 * 6 * (3 * 5 * 5) + 10 * 10 * 16 * (6 * 5 * 5)
    assert count_multiply_adds(build("lenet4")) == convolutions + 400 * 120 + 120 * 10


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"lenet4"}))  # which computes more than it must, to be faster
def test_multiply_adds_are_half_the_operations_that_pytorch_counts(name):
    with torch.device("meta"):
        model = build(name, in_channels=1).eval()
        with FlopCounterMode(display=False) as counter:
            model(torch.empty(1, 1, 32, 32))
    assert 2 * count_multiply_adds(model) == counter.get_total_flops()


def test_counting_leaves_the_network_as_it_was():
    model = build("shufflenet", seed=0)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    count_multiply_adds(model)
    assert model.training
    assert not any(layer._forward_hooks for layer in model.modules())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
