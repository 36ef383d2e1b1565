"""MobileNet (Howard et al., 2017): convolutions split into a depthwise and a pointwise one.

Differs from the paper: stride 1 instead of 2 in the first layer.
"""

from torch import nn

from bcsc.models.layers import ImageClassifier, conv_norm_relu, pooled_classifier, stages


def separable_unit(in_width: int, width: int, stride: int) -> nn.Sequential:
    """A 3x3 convolution per channel, then a 1x1 convolution across channels."""
    depthwise = conv_norm_relu(in_width, in_width, stride=stride, groups=in_width)
    return nn.Sequential(depthwise, conv_norm_relu(in_width, width, 1))


def mobilenet(num_classes: int, in_channels: int) -> ImageClassifier:
    """Thirteen separable units from 32 x 32 down to 2 x 2."""
    return ImageClassifier(
        conv_norm_relu(in_channels, 32),
        *stages(separable_unit, 32, [(1, 64, 1), (2, 128, 2), (2, 256, 2), (6, 512, 2), (2, 1024, 2)]),
        pooled_classifier(1024, num_classes),
        in_channels=in_channels,
    )
