"""LeNet-4 (LeCun et al., 1998): two convolutions and two fully connected layers.

Differs from the paper: 6 filters instead of 4 in the first layer, all connected to the 16 of the second; ReLU and
max pooling; one linear layer for the scores.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
    # ReLU after max pooling gives the bits of ReLU before it, forward and backward, at a quarter of its cost.
    return ImageClassifier(
        *(WindowConv2d(in_channels, 6, 5, padding=(32 - image_size) // 2), WindowMax(), nn.ReLU()),  # 32 -> 28 -> 14
        *(nn.Conv2d(6, 16, 5), ChannelsLastMaxPool2d(2), nn.ReLU()),  # 14 -> 10 -> 5
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(16 * 5 * 5, 120),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(120, num_classes),
        in_channels=in_channels,
        image_size=image_size,
        memory_format=torch.contiguous_format,
    )


class WindowConv2d(nn.Conv2d):
    """A convolution that puts the four values of each 2 x 2 window of its output into four channels side by side.

    It is one convolution of stride 2 whose kernel is the own one at the four places in a frame one pixel larger: half
    as much again to multiply, but four times the channels and no overlap, which a CPU does faster than the plain form.
    """

    def forward(self, images: Tensor) -> Tensor:
        places = [(right, 1 - right, down, 1 - down) for down in (0, 1) for right in (0, 1)]
        weight = torch.stack([F.pad(self.weight, place) for place in places], dim=1).flatten(0, 1)
        bias = None if self.bias is None else self.bias.repeat_interleave(4)
        return F.conv2d(images, weight, bias, stride=2, padding=self.padding)


class WindowMax(nn.Module):
    """The largest of every four channels, the first of equals: with ``WindowConv2d`` this is max pooling by 2 x 2.

    Pixels take the place of channels in a channels-last view, as there torch's pooling takes many of them at a time.
    """

    def forward(self, windows: Tensor) -> Tensor:
        num_images, channels, height, width = windows.shape
        rows = windows.reshape(num_images, channels, 1, height * width).permute(0, 3, 1, 2)
        return F.max_pool2d(rows, (4, 1)).permute(0, 2, 3, 1).reshape(num_images, channels // 4, height, width)


class ChannelsLastMaxPool2d(nn.MaxPool2d):
    """Max pooling in the layout where it is fast, for a convolution that is faster in the plain one."""

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = super().forward(images.contiguous(memory_format=torch.channels_last))
        return pooled
