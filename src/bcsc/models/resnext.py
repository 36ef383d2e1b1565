"""ResNeXt (Xie et al., 2017), twenty-nine layers: residual units whose 3x3 convolution works in groups.

Differs from the paper's network for Cifar: the first layer is a 1x1 convolution, and the units have 2 x 64 or 32 x 4
channels in their groups (named 2x64d and 32x4d) where the paper has 8 x 64 or 16 x 64.
"""

from functools import partial

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


def grouped_unit(in_width: int, width: int, stride: int, *, cardinality: int) -> Residual:
    """A bottleneck of half the width around a convolution in ``cardinality`` groups."""
    inner = width // 2
    body = nn.Sequential(
        conv_norm_relu(in_width, inner, 1),
        conv_norm_relu(inner, inner, stride=stride, groups=cardinality),
        conv_norm(inner, width, 1),
    )
    return Residual(body, projection_where_needed(in_width, width, stride))


def resnext29(num_classes: int, in_channels: int, *, cardinality: int) -> ImageClassifier:
    """Three units at each of 32 x 32, 16 x 16 and 8 x 8; cardinality 2 is 2x64d, cardinality 32 is 32x4d."""
    return ImageClassifier(
        conv_norm_relu(in_channels, 64, 1),
        *stages(partial(grouped_unit, cardinality=cardinality), 64, [(3, 256, 1), (3, 512, 2), (3, 1024, 2)]),
        pooled_classifier(1024, num_classes),
        in_channels=in_channels,
    )
