"""Goal 6: the step of BlockCyclic(SGD) against that of the bare fused SGD."""

import torch
from torch import nn

from bcsc import models
from bcsc.choices import MASKS
from bcsc.optim.block_cyclic import BlockCyclic
from benchmarks.clock import Action, Ratio, Size, interleaved
from benchmarks.problem import BLOCKS, fused_sgd

NETWORKS = ("resnet18", "dpn92")


def with_gradients(model: str) -> nn.Module:
    """A network after a backward pass, as far as the optimizer can tell."""
    network = models.build(model, seed=0)
    for p in network.parameters():
        p.grad = torch.full_like(p, 1e-3)
    return network


def measure_network(model: str, rounds: int) -> list[Ratio]:
    """All three masks; the goal is for the paper's."""
    network = with_gradients(model)
    bare = fused_sgd(network)
    optimizers = {mask: BlockCyclic(fused_sgd(network), BLOCKS, mask=mask) for mask in MASKS}
    contestants: dict[str, Action] = {"bare": bare.step}
    contestants |= {mask: optimizer.step for mask, optimizer in optimizers.items()}
    medians = interleaved(contestants, rounds)
    return [
        Ratio(
            6,
            f'step on {model}, mask "{mask}" / fused SGD',
            medians[mask] / medians["bare"],
            2.0 if mask == "update" else None,
            {mask: medians[mask], "bare": medians["bare"]},
        )
        for mask in MASKS
    ]


def measure(size: Size) -> list[Ratio]:
    """ResNet18 and DPN92; LeNet4 in the tiny size."""
    networks = ("lenet4",) if size.tiny else NETWORKS
    return [row for model in networks for row in measure_network(model, size.pick(25, 1))]
