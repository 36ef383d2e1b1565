"""A small run with everything that could break a continuation: momentum, BatchNorm, dropout, augmentation, outliers,
a schedule. Digits, two epochs of a few steps."""

from pathlib import Path

import torch
from torch import nn

import bcsc
from bcsc.data.dataset import load
from bcsc.data.feeding import Feeder
from bcsc.data.outliers import Outliers

SETTINGS = {"method": "bcsc", "blocks": 4, "epochs": 4, "batch_size": 50, "seed": 3}


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 5, stride=3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(400, 10),
        )


def sets() -> tuple[Feeder, Feeder]:
    data = load("digits").first(325).with_outliers(Outliers.parse("symmetric:0.2"))
    constants = {"mean": data.source.mean, "std": data.source.std}
    train = Feeder(data.train_images, data.train_labels, augment=True, seed=3, **constants)
    return train, Feeder(data.test_images[:60], data.test_labels[:60], **constants)


def train(out: Path, model: nn.Module | None = None, **changes) -> bcsc.Result:
    options = bcsc.RunOptions(checkpoint_every=changes.pop("checkpoint_every", 3), watcher=changes.pop("watcher", None))
    return bcsc.train(model or network(), *sets(), out=out, options=options, **{**SETTINGS, **changes})
