"""Goal 2: an epoch here against what people use instead."""

import time
from itertools import cycle, islice

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from bcsc.benchmarking import naive, problem
from bcsc.benchmarking.clock import Ratio, Size, interleaved, ratio
from bcsc.running.watch import SilentWatcher


def epoch_here(num_images: int, num_blocks: int) -> None:
    """One epoch of what ``bcsc train`` does, without its last test."""
    problem.trainer("lenet4", num_images, num_blocks).run(lambda: None, lambda: False, SilentWatcher())


def pictures(num_images: int) -> tuple[Tensor, Tensor]:
    """Random images for the naive loops."""
    feeder = problem.random_feeder(num_images)
    return feeder.images, feeder.labels


def sgd(size: Size) -> Ratio:
    """The usual script."""
    images, labels = pictures(size.pick(12_800, 256))
    contestants = {
        "here": lambda: epoch_here(len(images), 1),
        "usual script": lambda: naive.sgd_epoch(images, labels),
    }
    medians = interleaved(contestants, size.pick(3, 1), time.perf_counter)  # others work for the loops
    return ratio(2, "epoch of SGD, LeNet4 / the usual script", medians, 1 / 3)


def bcsc(size: Size) -> Ratio:
    """The naive loop."""
    images, labels = pictures(size.pick(3_200, 128))
    contestants = {
        "here": lambda: epoch_here(len(images), problem.BLOCKS),
        "naive loop": lambda: naive.bcsc_epoch(images, labels),
    }
    medians = interleaved(contestants, size.pick(3, 1), time.perf_counter)  # others work for the loops
    return ratio(2, "epoch of BCSC, M = 8, LeNet4 / the naive loop", medians, 0.5)


def feeding(size: Size) -> Ratio:
    """Stretches of an epoch against a DataLoader in the same process."""
    feeder = problem.random_feeder(size.pick(50_000, 1_000))
    order = torch.randperm(len(feeder))
    steps = cycle(enumerate(torch.split(order, problem.BATCH)))
    usual = iter(DataLoader(naive.ImageByImage(feeder.images, feeder.labels), problem.BATCH, shuffle=True))

    stretch = size.pick(20, 2)

    def feed() -> None:
        for step, indices in islice(steps, stretch):
            feeder.batch(indices, 0, step)

    def feed_image_by_image() -> None:
        for _ in islice(usual, stretch):
            pass

    medians = interleaved({"here": feed, "image by image": feed_image_by_image}, size.pick(15, 2))
    return ratio(2, "feeding batches of 128 / image by image", medians, 0.1)


def measure(size: Size) -> list[Ratio]:
    """Whole epochs, and feeding by itself."""
    return [sgd(size), bcsc(size), feeding(size)]
