"""What a network costs: its parameters, and its multiply-adds for one image."""

import copy

import torch
from torch import Tensor, nn

from bcsc.models.layers import ImageClassifier


def count_parameters(model: nn.Module) -> int:
    """All scalars that training can change."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_multiply_adds(model: ImageClassifier) -> int:
    """Those of the convolutions and linear layers for one image; shapes only, nothing is computed."""
    counts = []

    def count(layer: nn.Conv2d | nn.Linear, _: object, output: Tensor) -> None:
        counts.append(layer.weight[0].numel() * output.numel())

    shapes = copy.deepcopy(model).to("meta").eval()
    for layer in shapes.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    shapes(torch.empty(1, *model.input_shape, device="meta"))
    return sum(counts)
