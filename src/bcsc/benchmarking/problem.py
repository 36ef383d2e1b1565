"""What is measured on: pictures of CIFAR-10's shape with random pixels, which cost as much as real ones."""

from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bcsc import models
from bcsc.data.feeding import Feeder
from bcsc.data.registry import SOURCES
from bcsc.methods import build_method
from bcsc.models.layers import ImageClassifier
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.running.batches import FeederData
from bcsc.seeding import stream
from bcsc.training.schedule import learning_rate
from bcsc.training.trainer import Plan, Trainer

CIFAR10 = SOURCES["cifar10"]
BATCH, BLOCKS = 128, 8
RECIPE: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}


@cache
def random_feeder(num_images: int, *, augment: bool = True) -> Feeder:
    """Images and labels drawn at random."""
    generator = stream(0, "benchmark")
    pixels = torch.randint(256, (num_images, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (num_images,), generator=generator)
    return Feeder(pixels, labels, mean=CIFAR10.mean, std=CIFAR10.std, augment=augment)


def fused_sgd(network: nn.Module) -> torch.optim.SGD:
    """The paper's optimizer, as the runs use it."""
    return torch.optim.SGD(network.parameters(), fused=True, **RECIPE)


def trainer(model: str, num_images: int, num_blocks: int, batch_size: int = BATCH) -> Trainer:
    """A trainer of one epoch, built as a run is."""
    network = models.build(model, seed=0)
    method = "bcsc" if num_blocks > 1 else "sgd"
    optimizer, sampler = build_method(
        method, fused_sgd(network), num_samples=num_images, batch_size=batch_size, num_blocks=num_blocks
    )
    data = FeederData(random_feeder(num_images), random_feeder(1, augment=False), sampler, 1)
    rate = partial(learning_rate, "constant", RECIPE["lr"], epochs=1)
    plan = Plan(epochs=1, learning_rate=rate, loss_fn=F.cross_entropy, seed=0, device=torch.device("cpu"))
    return Trainer(network, optimizer, data, plan)


class ForwardBackward:
    """A bare forward and backward pass over a batch held ready in memory."""

    def __init__(self, network: nn.Module, batch_size: int = BATCH) -> None:
        self.network = network
        self.images, self.labels = random_feeder(batch_size).batch(torch.arange(batch_size))

    def __call__(self) -> None:
        self.network.zero_grad()
        torch.autograd.backward(F.cross_entropy(self.network(self.images), self.labels))


def lenet4() -> ImageClassifier:
    """The network as it is trained here."""
    return models.build("lenet4", seed=0)


def blockwise(network: nn.Module) -> BlockCyclic:
    """BCSC's optimizer around the paper's."""
    return BlockCyclic(fused_sgd(network), BLOCKS)
