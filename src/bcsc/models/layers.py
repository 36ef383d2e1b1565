"""Pieces that two or more families share."""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcsc.errors import InvalidArgumentError


class ImageClassifier(nn.Module):
    """The layers in order, from images of one fixed shape to one score per class.

    The images are laid out as ``memory_format`` says on entry, and that layout spreads through all layers: most
    convolutions and all pooling are fastest on a CPU with their channels last.
    """

    def __init__(
        self,
        *layers: nn.Module,
        in_channels: int,
        image_size: int = 32,
        memory_format: torch.memory_format = torch.channels_last,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.input_shape = (in_channels, image_size, image_size)
        self.memory_format = memory_format

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[1:] != self.input_shape:
            raise InvalidArgumentError(
                f"This network takes images of shape (batch, {', '.join(map(str, self.input_shape))}), got "
                f"{tuple(images.shape)}. Build it with fitting in_channels and image_size, or pad the images."
            )
        scores: Tensor = self.layers(images.contiguous(memory_format=self.memory_format))
        return scores


class Residual(nn.Module):
    """ReLU of the sum of two paths over the same input."""

    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def convolution(
    in_width: int, width: int, kernel: int = 3, *, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """A convolution that keeps the size of its input, up to the stride."""
    return nn.Conv2d(in_width, width, kernel, stride, padding=kernel // 2, groups=groups, bias=bias)


def conv_norm(
    in_width: int, width: int, kernel: int = 3, *, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Sequential:
    """A convolution and its batch normalisation."""
    conv = convolution(in_width, width, kernel, stride=stride, groups=groups, bias=bias)
    return nn.Sequential(conv, nn.BatchNorm2d(width))


def conv_norm_relu(
    in_width: int, width: int, kernel: int = 3, *, stride: int = 1, groups: int = 1, bias: bool = False
) -> nn.Sequential:
    """A convolution, its batch normalisation and a ReLU."""
    return conv_norm(in_width, width, kernel, stride=stride, groups=groups, bias=bias).append(nn.ReLU())


def projection_where_needed(in_width: int, width: int, stride: int) -> nn.Module:
    """The shortcut around a unit: the identity, or a 1x1 convolution where the shape changes."""
    if in_width == width and stride == 1:
        return nn.Identity()
    return conv_norm(in_width, width, 1, stride=stride)


def stages(
    unit: Callable[[int, int, int], nn.Module], in_width: int, table: Iterable[tuple[int, int, int]]
) -> list[nn.Module]:
    """Units by a table of (number of units, width, stride); the first unit of each stage takes its stride."""
    units = []
    for num_units, width, first_stride in table:
        for stride in [first_stride] + [1] * (num_units - 1):
            units.append(unit(in_width, width, stride))
            in_width = width
    return units


def pooled_classifier(width: int, num_classes: int) -> nn.Sequential:
    """The average over all positions, then one linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))
