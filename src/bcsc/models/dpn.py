"""Dual path network (Chen et al., 2017), DPN-92: in one unit, a residual path that adds and a dense path that grows.

Differs from the paper: the first layer is one 3x3 convolution of stride 1 without pooling, and batch normalisation
follows each convolution, as in ResNet.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcsc.models.layers import ImageClassifier, conv_norm, conv_norm_relu, pooled_classifier

# (units, bottleneck width, residual width, growth of the dense path, stride), as in the paper's table 1
STAGES = ((3, 96, 256, 16, 1), (4, 192, 512, 32, 2), (20, 384, 1024, 24, 2), (3, 768, 2048, 128, 2))
CARDINALITY = 32


class DualPathUnit(nn.Module):
    """Add the first ``residual`` channels to the input's; append the remaining ``growth`` to it."""

    def __init__(self, in_width: int, inner: int, residual: int, growth: int, *, stride: int, projects: bool) -> None:
        super().__init__()
        self.residual = residual
        self.body = nn.Sequential(
            conv_norm_relu(in_width, inner, 1),
            conv_norm_relu(inner, inner, stride=stride, groups=CARDINALITY),
            conv_norm(inner, residual + growth, 1),
        )
        self.shortcut = conv_norm(in_width, residual + growth, 1, stride=stride) if projects else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        kept, new = self.shortcut(x), self.body(x)
        added = kept[:, : self.residual] + new[:, : self.residual]
        return F.relu(torch.cat([added, kept[:, self.residual :], new[:, self.residual :]], dim=1))


def dpn92(num_classes: int, in_channels: int) -> ImageClassifier:
    """Thirty units at 32 x 32, 16 x 16, 8 x 8 and 4 x 4; the first of each stage projects onto its widths."""
    layers: list[nn.Module] = [conv_norm_relu(in_channels, 64)]
    in_width = 64
    for num_units, inner, residual, growth, first_stride in STAGES:
        for index in range(num_units):
            first = index == 0
            stride = first_stride if first else 1
            layers.append(DualPathUnit(in_width, inner, residual, growth, stride=stride, projects=first))
            in_width = residual + (index + 2) * growth
    return ImageClassifier(*layers, pooled_classifier(in_width, num_classes), in_channels=in_channels)
