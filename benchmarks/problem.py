"""What is measured on: CIFAR-10 where its files are, else random pixels in its shape, which cost as much."""

from collections.abc import Iterator
from functools import cache, partial
from itertools import cycle
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcsc import models
from bcsc.data.dataset import load
from bcsc.data.feeding import IMAGES_AT_ONCE, Feeder, Step
from bcsc.data.registry import SOURCES
from bcsc.errors import DataError
from bcsc.models.layers import ImageClassifier
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.optim.methods import build_method
from bcsc.runs.batches import FeederData
from bcsc.seeding import stream
from bcsc.training.schedule import learning_rate
from bcsc.training.trainer import Plan, Trainer

CIFAR10 = SOURCES["cifar10"]
BATCH, BLOCKS = 128, 8
CYCLE = IMAGES_AT_ONCE // BATCH  # steps that are fed together, so only whole cycles compare
RECIPE: dict[str, Any] = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}


class Pictures(NamedTuple):
    """50,000 images and labels, and where they are from."""

    images: Tensor
    labels: Tensor
    origin: str


@cache
def pictures() -> Pictures:
    """The training set."""
    try:
        dataset = load("cifar10", download=False)
    except DataError:
        generator = stream(0, "benchmark")
        pixels = torch.randint(256, (50_000, 3, 32, 32), generator=generator, dtype=torch.uint8)
        return Pictures(pixels, torch.randint(10, (50_000,), generator=generator), "random pixels")
    return Pictures(dataset.train_images, dataset.train_labels, "CIFAR-10")


def feeder(num_images: int, *, augment: bool = True) -> Feeder:
    """The first of them, as they are fed to training."""
    images, labels, _ = pictures()
    return Feeder(images[:num_images], labels[:num_images], mean=CIFAR10.mean, std=CIFAR10.std, augment=augment)


def endless_batches(source: Feeder) -> Iterator[tuple[Tensor, Tensor]]:
    """Whole batches of images at random places, over and over, as a training loop asks for them."""
    order = torch.split(torch.randperm(len(source))[: len(source) // BATCH * BATCH], BATCH)
    return source.batches(0, cycle(Step(*numbered) for numbered in enumerate(order)), overwrite=True)


def fused_sgd(network: nn.Module) -> torch.optim.SGD:
    """The paper's optimizer, as the runs use it."""
    return torch.optim.SGD(network.parameters(), fused=True, **RECIPE)


def trainer(
    model: str,
    num_images: int,
    num_blocks: int,
    *,
    kind: type[Trainer] = Trainer,
    data_kind: type[FeederData] = FeederData,
) -> Trainer:
    """A trainer of one epoch, built as a run is."""
    network = models.build(model, seed=0)
    method = "bcsc" if num_blocks > 1 else "sgd"
    optimizer, sampler = build_method(
        method, fused_sgd(network), num_samples=num_images, batch_size=BATCH, num_blocks=num_blocks
    )
    data = data_kind(feeder(num_images), feeder(1, augment=False), sampler, 1, overwrite=True)
    rate = partial(learning_rate, "constant", RECIPE["lr"], epochs=1)
    plan = Plan(epochs=1, learning_rate=rate, loss_fn=F.cross_entropy, seed=0, device=torch.device("cpu"))
    return kind(network, optimizer, data, plan)


class ForwardBackward:
    """A bare forward and backward pass over a batch held ready in memory."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.images, self.labels = feeder(BATCH).batch(torch.arange(BATCH))

    def __call__(self) -> None:
        self.network.zero_grad()
        torch.autograd.backward(F.cross_entropy(self.network(self.images), self.labels))


def lenet4() -> ImageClassifier:
    """The network as it is trained here."""
    return models.build("lenet4", seed=0)


def blockwise(network: nn.Module) -> BlockCyclic:
    """BCSC's optimizer around the paper's."""
    return BlockCyclic(fused_sgd(network), BLOCKS)
