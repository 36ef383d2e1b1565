"""DenseNet (Huang et al., 2017) with bottlenecks and compression, 121 layers; the study calls it DenseConv.

Differs from the paper: the units per stage are those of its ImageNet table, but the first layer is one 3x3
convolution of stride 1 without pooling.
"""

import torch
from torch import Tensor, nn

from bcsc.models.layers import ImageClassifier, convolution, pooled_classifier

UNITS_PER_STAGE = (6, 12, 24, 16)


def norm_relu_conv(in_width: int, width: int, kernel: int) -> nn.Sequential:
    """Normalisation and ReLU in front of a convolution."""
    return nn.Sequential(nn.BatchNorm2d(in_width), nn.ReLU(), convolution(in_width, width, kernel))


class DenseUnit(nn.Module):
    """Append ``growth`` new channels, computed from all channels so far."""

    def __init__(self, in_width: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(norm_relu_conv(in_width, 4 * growth, 1), norm_relu_conv(4 * growth, growth, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.new(x)], dim=1)


def denseconv(num_classes: int, in_channels: int, *, growth: int) -> ImageClassifier:
    """Dense stages at 32 x 32, 16 x 16, 8 x 8 and 4 x 4; between them the width and the size are halved."""
    width = 2 * growth
    layers: list[nn.Module] = [convolution(in_channels, width)]
    for stage_index, num_units in enumerate(UNITS_PER_STAGE):
        if stage_index > 0:
            layers += [norm_relu_conv(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
        layers += [DenseUnit(width + index * growth, growth) for index in range(num_units)]
        width += num_units * growth
    layers += [nn.BatchNorm2d(width), nn.ReLU(), pooled_classifier(width, num_classes)]
    return ImageClassifier(*layers, in_channels=in_channels)
