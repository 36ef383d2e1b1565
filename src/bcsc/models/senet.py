"""SENet (Hu et al., 2018): ResNet18 whose channels are weighted by what the whole image shows.

Differs from the paper: the residual units are pre-activated (He et al., 2016, arXiv:1603.05027), without the
normalisation that closes such a network, and the first layer is one 3x3 convolution of stride 1 without pooling.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from bcsc.models.layers import ImageClassifier, conv_norm_relu, convolution, pooled_classifier, stages

REDUCTION = 16


class SqueezeExcitation(nn.Module):
    """Multiply each channel by a weight between 0 and 1, computed from the averages of all channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weights = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            convolution(width, width // REDUCTION, 1, bias=True),
            nn.ReLU(),
            convolution(width // REDUCTION, width, 1, bias=True),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        weighted: Tensor = x * self.weights(x)
        return weighted


class PreactivatedUnit(nn.Module):
    """Two 3x3 convolutions, weighted, and a shortcut that shares the first activation where it has to project."""

    def __init__(self, in_width: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(in_width)
        self.body = nn.Sequential(
            conv_norm_relu(in_width, width, stride=stride), convolution(width, width), SqueezeExcitation(width)
        )
        same_shape = in_width == width and stride == 1
        self.projection = None if same_shape else convolution(in_width, width, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm(x))
        shortcut = x if self.projection is None else self.projection(active)
        total: Tensor = self.body(active) + shortcut
        return total


def senet18(num_classes: int, in_channels: int) -> ImageClassifier:
    """Two units at each of 32 x 32, 16 x 16, 8 x 8 and 4 x 4."""
    return ImageClassifier(
        conv_norm_relu(in_channels, 64),
        *stages(PreactivatedUnit, 64, [(2, 64, 1), (2, 128, 2), (2, 256, 2), (2, 512, 2)]),
        pooled_classifier(512, num_classes),
        in_channels=in_channels,
    )
