"""Goal 6: the step of BlockCyclic against that of its bare base, in time and in dispatched operations."""

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from bcsc import models
from bcsc.choices import MASKS, Mask
from bcsc.optim.block_cyclic import BlockCyclic
from benchmarks.clock import Action, Ratio, Size, interleaved
from benchmarks.operations import BASES, counted, network_without_numbers
from benchmarks.problem import BLOCKS, fused_sgd

GOALS: dict[tuple[str, str, Mask], float] = {
    ("SGD", "lenet4", "update"): 1.0,
    ("SGD", "resnet18", "update"): 1.2,
    ("SGD", "dpn92", "update"): 1.2,
    ("SGD", "resnet18", "all"): 1.5,
    ("SGD", "dpn92", "all"): 1.5,
    ("AdamW", "resnet18", "update"): 1.3,
}
MOST_OPERATIONS = 30
ROUNDS = {"lenet4": 100, "resnet18": 13, "dpn92": 13}


def with_gradients(model: str) -> nn.Module:
    """A network after a backward pass, as far as the optimizer can tell."""
    network = models.build(model, seed=0)
    for p in network.parameters():
        p.grad = torch.full_like(p, 1e-3)
    return network


def fused_adamw(network: nn.Module) -> AdamW:
    """AdamW as the runs use it."""
    return AdamW(network.parameters(), fused=True)


FUSED: dict[str, Callable[[nn.Module], Optimizer]] = {"SGD": fused_sgd, "AdamW": fused_adamw}


def in_time(base: str, model: str, rounds: int) -> list[Ratio]:
    """All three masks."""
    network = with_gradients(model)
    contestants: dict[str, Action] = {"bare": FUSED[base](network).step}
    for mask in MASKS:
        contestants[mask] = BlockCyclic(FUSED[base](network), BLOCKS, mask=mask).step
    medians = interleaved(contestants, rounds)
    return [
        Ratio(
            6,
            f'step on {model}, mask "{mask}" / fused {base}',
            medians[mask] / medians["bare"],
            GOALS.get((base, model, mask)),
            {mask: medians[mask], "bare": medians["bare"]},
        )
        for mask in MASKS
    ]


def more_operations(model: str, base: str, mask: Mask) -> int:
    """How many operations a step dispatches beyond its bare base's."""
    parameters = network_without_numbers(model)
    bare = BASES[base](parameters)
    optimizer = BlockCyclic(BASES[base](parameters), 2, mask=mask, granularity="row")
    for _ in range(2):  # state is made
        bare.step()
        optimizer.step()
    return counted(optimizer.step).counts.total() - counted(bare.step).counts.total()


def in_operations(model: str) -> Ratio:
    """The most over bases and masks."""
    counts = [more_operations(model, base, mask) for base in BASES for mask in MASKS]
    return Ratio(6, f"dispatched operations above the base's, {model}", float(max(counts)), MOST_OPERATIONS, {})


def measure(size: Size) -> list[Ratio]:
    """SGD on LeNet4, ResNet18 and DPN92, AdamW on ResNet18; LeNet4 alone in the tiny size."""
    pairs = [("SGD", "lenet4")] if size.tiny else list(dict.fromkeys((base, model) for base, model, _ in GOALS))
    times = [row for base, model in pairs for row in in_time(base, model, size.pick(ROUNDS[model], 1))]
    return [*times, *map(in_operations, ("lenet4",) if size.tiny else ("resnet18", "dpn92"))]
