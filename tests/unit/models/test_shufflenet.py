"""Between the two convolutions in groups the channels are shuffled, so that what is in one group reaches both."""

import pytest
import torch
from torch import nn

from bcsc.models.shufflenet import ShuffleUnit


@pytest.mark.parametrize("stride", [1, 2])
def test_both_groups_of_a_unit_see_both_groups_of_its_input(stride: int) -> None:
    unit = ShuffleUnit(40, 80 if stride == 2 else 40, stride, groups=2)
    body = nn.Sequential(*[layer for layer in unit.body.modules() if isinstance(layer, nn.Conv2d | nn.ChannelShuffle)])
    for own in (range(20), range(20, 40)):
        image = torch.zeros(1, 40, 5, 5)
        image[:, own] = torch.rand(1, 20, 5, 5, generator=torch.Generator().manual_seed(0))
        for half in body(image).chunk(2, dim=1):
            assert (half != 0).any()
