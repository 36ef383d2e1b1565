"""LeNet-4 (LeCun et al., 1998): two convolutions and two fully connected layers.

Differs from the paper: 6 filters instead of 4 in the first layer, all connected to the 16 of the second; ReLU and
max pooling; one linear layer for the scores.
"""

from torch import nn

from bcsc.errors import InvalidArgumentError
from bcsc.models.layers import ImageClassifier


def lenet4(num_classes: int, in_channels: int, image_size: int = 32, dropout: float = 0.0) -> ImageClassifier:
    """Four layers of weights; ``dropout`` acts in front of both fully connected ones.

    Images of 28 x 28 are padded with zeros to 32 x 32 by the first convolution, as LeCun et al. do with MNIST,
    so that the weights are the same for both sizes.
    """
    if image_size not in (28, 32):
        raise InvalidArgumentError(f"lenet4 takes an image_size of 28 or 32, got {image_size!r}. Pad the images to 32.")
    if not 0 <= dropout < 1:
        raise InvalidArgumentError(f"dropout must be at least 0 and below 1, got {dropout!r}.")
    return ImageClassifier(
        *conv_pool_relu(in_channels, 6, padding=(32 - image_size) // 2),  # 32 -> 28 -> 14
        *conv_pool_relu(6, 16),  # 14 -> 10 -> 5
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(120, num_classes),
        in_channels=in_channels,
        image_size=image_size,
    )


def conv_pool_relu(in_width: int, width: int, *, padding: int = 0) -> list[nn.Module]:
    """ReLU after max pooling gives the bits of ReLU before it, forward and backward, at a quarter of its cost."""
    return [nn.Conv2d(in_width, width, 5, padding=padding), nn.MaxPool2d(2), nn.ReLU()]
