"""Goal 2: an epoch here against what people use instead."""

import time
from collections.abc import Iterator
from functools import partial

from torch import Tensor
from torch.utils.data import DataLoader

from bcsc.training.watcher import Watcher
from benchmarks import naive, problem
from benchmarks.clock import Ratio, Size, interleaved, ratio


def epoch_here(num_images: int, num_blocks: int) -> None:
    """One epoch of what ``bcsc train`` does, without its last test."""
    problem.trainer("lenet4", num_images, num_blocks).run(lambda: None, lambda: False, Watcher())


def first_pictures(num_images: int) -> tuple[Tensor, Tensor]:
    """Images and labels for the naive loops."""
    images, labels, _ = problem.pictures()
    return images[:num_images], labels[:num_images]


def sgd(size: Size) -> Ratio:
    """The usual script, over the whole training set."""
    images, labels = first_pictures(size.pick(50_000, 256))
    contestants = {
        "here": lambda: epoch_here(len(images), 1),
        "usual script": lambda: naive.sgd_epoch(images, labels),
    }
    medians = interleaved(contestants, size.pick(2, 1), time.perf_counter)  # others work for the loops
    return ratio(2, "epoch of SGD, LeNet4 / the usual script", medians, 0.28)


def bcsc(size: Size) -> Ratio:
    """The naive loop, over an eighth of it."""
    images, labels = first_pictures(size.pick(6_400, 128))
    contestants = {
        "here": lambda: epoch_here(len(images), problem.BLOCKS),
        "naive loop": lambda: naive.bcsc_epoch(images, labels),
    }
    medians = interleaved(contestants, size.pick(3, 1), time.perf_counter)  # others work for the loops
    return ratio(2, "epoch of BCSC, M = 8, LeNet4 / the naive loop", medians, 0.33)


def feeding(size: Size) -> Ratio:
    """Stretches of an epoch against a DataLoader in the same process."""
    feeder = problem.feeder(size.pick(50_000, 1_000))
    here = problem.endless_batches(feeder)
    usual = iter(DataLoader(naive.ImageByImage(feeder.images, feeder.labels), problem.BATCH, shuffle=True))
    stretch = size.pick(2 * problem.CYCLE, 2)

    def feed(batches: Iterator[object]) -> None:
        for _ in range(stretch):
            next(batches)

    contestants = {"here": partial(feed, here), "image by image": partial(feed, usual)}
    medians = interleaved(contestants, size.pick(7, 2))
    return ratio(2, "feeding batches of 128 / image by image", medians, 0.1)


def measure(size: Size) -> list[Ratio]:
    """Whole epochs, and feeding by itself."""
    return [sgd(size), bcsc(size), feeding(size)]
