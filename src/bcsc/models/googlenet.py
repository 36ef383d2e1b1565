"""GoogLeNet (Szegedy et al., 2015): nine inception units.

Differs from the paper: one 3x3 convolution instead of its first layers, batch normalisation after each convolution,
two 3x3 convolutions for each 5x5, no local response normalisation, no auxiliary classifiers, no dropout.
"""

import torch
from torch import Tensor, nn

from bcsc.models.layers import ImageClassifier, conv_norm_relu, pooled_classifier


class Inception(nn.Module):
    """Four branches side by side. The widths are a row of the paper's table 1."""

    def __init__(self, in_width: int, point: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> None:
        super().__init__()
        self.point = conv_norm_relu(in_width, point, 1, bias=True)
        self.three = nn.Sequential(conv_norm_relu(in_width, three[0], 1, bias=True), conv_norm_relu(*three, bias=True))
        self.five = nn.Sequential(
            conv_norm_relu(in_width, five[0], 1, bias=True),
            conv_norm_relu(*five, bias=True),
            conv_norm_relu(five[1], five[1], bias=True),
        )
        self.pooled = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1), conv_norm_relu(in_width, pooled, 1, bias=True)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.point(x), self.three(x), self.five(x), self.pooled(x)], dim=1)


def googlenet(num_classes: int, in_channels: int) -> ImageClassifier:
    """Inception units at 32 x 32, 16 x 16 and 8 x 8."""
    return ImageClassifier(
        conv_norm_relu(in_channels, 192, bias=True),
        Inception(192, 64, (96, 128), (16, 32), 32),
        Inception(256, 128, (128, 192), (32, 96), 64),
        nn.MaxPool2d(3, stride=2, padding=1),
        Inception(480, 192, (96, 208), (16, 48), 64),
        Inception(512, 160, (112, 224), (24, 64), 64),
        Inception(512, 128, (128, 256), (24, 64), 64),
        Inception(512, 112, (144, 288), (32, 64), 64),
        Inception(528, 256, (160, 320), (32, 128), 128),
        nn.MaxPool2d(3, stride=2, padding=1),
        Inception(832, 256, (160, 320), (32, 128), 128),
        Inception(832, 384, (192, 384), (48, 128), 128),
        pooled_classifier(1024, num_classes),
        in_channels=in_channels,
    )
