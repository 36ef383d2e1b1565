"""ResNet (He et al., 2016), eighteen layers.

Differs from the paper: the first layer is one 3x3 convolution of stride 1 without pooling.
"""

from torch import nn

from bcsc.models.layers import (
    ImageClassifier,
    Residual,
    conv_norm,
    conv_norm_relu,
    pooled_classifier,
    projection_where_needed,
    stages,
)


def basic_unit(in_width: int, width: int, stride: int) -> Residual:
    """Two 3x3 convolutions and a shortcut."""
    body = nn.Sequential(conv_norm_relu(in_width, width, stride=stride), conv_norm(width, width))
    return Residual(body, projection_where_needed(in_width, width, stride))


def resnet18(num_classes: int, in_channels: int) -> ImageClassifier:
    """Two basic units at each of 32 x 32, 16 x 16, 8 x 8 and 4 x 4."""
    return ImageClassifier(
        conv_norm_relu(in_channels, 64),
        *stages(basic_unit, 64, [(2, 64, 1), (2, 128, 2), (2, 256, 2), (2, 512, 2)]),
        pooled_classifier(512, num_classes),
        in_channels=in_channels,
    )
