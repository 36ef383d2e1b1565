"""VGG (Simonyan and Zisserman, 2015), configuration E: sixteen 3x3 convolutions.

Differs from the paper: batch normalisation after each convolution, and one linear layer instead of three.
"""

from torch import nn

from bcsc.models.layers import ImageClassifier, conv_norm_relu, pooled_classifier

STAGES = ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512))  # (convolutions, width); max pooling ends each


def vgg19(num_classes: int, in_channels: int) -> ImageClassifier:
    """Nineteen layers of weights in the paper, seventeen here."""
    layers: list[nn.Module] = []
    in_width = in_channels
    for num_convolutions, width in STAGES:
        for _ in range(num_convolutions):
            layers.append(conv_norm_relu(in_width, width, bias=True))
            in_width = width
        layers.append(nn.MaxPool2d(2))  # 32 -> 16 -> 8 -> 4 -> 2 -> 1
    return ImageClassifier(*layers, pooled_classifier(in_width, num_classes), in_channels=in_channels)
