"""ShuffleNet (Zhang et al., 2018) with two groups: 1x1 convolutions in groups, whose channels are then shuffled.

Differs from the paper: the first layer is a 1x1 convolution of stride 1 without pooling, and a ReLU follows the
depthwise convolution.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcsc.models.layers import ImageClassifier, conv_norm, conv_norm_relu, pooled_classifier, stages

FIRST_WIDTH = 24


class ShuffleUnit(nn.Module):
    """A bottleneck of a quarter of the width; it adds to its input, or at stride 2 stands beside its pooled input."""

    def __init__(self, in_width: int, width: int, stride: int, *, groups: int) -> None:
        super().__init__()
        self.stride = stride
        new = width - in_width if stride == 2 else width
        inner = new // 4
        first_groups = 1 if in_width == FIRST_WIDTH else groups  # too few channels to split, says the paper
        self.body = nn.Sequential(
            conv_norm_relu(in_width, inner, 1, groups=first_groups),
            nn.ChannelShuffle(first_groups),
            conv_norm_relu(inner, inner, stride=stride, groups=inner),
            conv_norm(inner, new, 1, groups=groups),
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1:
            return F.relu(self.body(x) + x)
        return F.relu(torch.cat([self.body(x), F.avg_pool2d(x, 3, stride=2, padding=1)], dim=1))


def shufflenet(num_classes: int, in_channels: int) -> ImageClassifier:
    """Four, eight and four units at 16 x 16, 8 x 8 and 4 x 4."""
    return ImageClassifier(
        conv_norm_relu(in_channels, FIRST_WIDTH, 1),
        *stages(partial(ShuffleUnit, groups=2), FIRST_WIDTH, [(4, 200, 2), (8, 400, 2), (4, 800, 2)]),
        pooled_classifier(800, num_classes),
        in_channels=in_channels,
    )
