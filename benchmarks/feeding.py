"""How fast is feeding? Two targets, measured side by side in one run, on CIFAR-10's shape:

- preparing a batch of 128 takes at most 5 % of a forward and backward pass of LeNet4;
- an epoch is fed at least 10 times as fast as by a DataLoader that crops, flips and normalises image by image.

    python benchmarks/feeding.py [--threads N] [--rounds N]

They take turns, so that a slow moment of the machine hits them alike; medians are compared. Random pixels cost as
much as real ones, so no data set is needed. Exit code 1 if a target is missed.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bcsc.data.feeding import Feeder
from bcsc.data.registry import SOURCES
from bcsc.seeding import stream

CIFAR10 = SOURCES["cifar10"]
NUM_IMAGES, BATCH = 50_000, 128
MOST_OF_A_STEP = 0.05
LEAST_SPEEDUP = 10
STRETCH = 10  # batches in a row
LEARN, FEED_BETWEEN = "LeNet4 forward-backward", "feeder between such steps"
FEED, USUAL = "feeder by itself", "image by image by itself"


def lenet4() -> nn.Module:
    """5x5 convolutions with 6 and 16 filters, then 120 and 10 units: 52,202 weights."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10)),
    )


class ImageByImage(Dataset[tuple[Tensor, int]]):
    """The usual way: each image is scaled, padded, cropped, flipped and normalised by itself."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.mean, self.std = (torch.tensor(values)[:, None, None] for values in (CIFAR10.mean, CIFAR10.std))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        top, left, flip = (int(torch.randint(most, ())) for most in (9, 9, 2))
        image = F.pad(self.images[index], (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
        image = image.flip(-1) if flip else image
        return (image.float().div(255) - self.mean) / self.std, int(self.labels[index])


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, float]:
    """The median seconds per batch of learning, of feeding in between, and of nothing but feeding in both ways."""
    pixels = torch.randint(256, (NUM_IMAGES, 3, 32, 32), generator=stream(0, "benchmark"), dtype=torch.uint8)
    labels = torch.randint(10, (NUM_IMAGES,), generator=stream(1, "benchmark"))
    feeder = Feeder(pixels, labels, mean=CIFAR10.mean, std=CIFAR10.std, augment=True)
    order = torch.randperm(NUM_IMAGES, generator=stream(2, "benchmark"))
    batches = cycle(enumerate(order.split(BATCH)))
    usual: Iterator[object] = iter(DataLoader(ImageByImage(pixels, labels), BATCH, shuffle=True))
    network = lenet4()
    images, targets = feeder.batch(order[:BATCH])

    def feed() -> None:
        step, indices = next(batches)
        feeder.batch(indices, 0, step)

    def learn() -> None:
        network.zero_grad(set_to_none=True)
        F.cross_entropy(network(images), targets).backward()

    times: dict[str, list[float]] = {name: [] for name in (LEARN, FEED_BETWEEN, FEED, USUAL)}
    for _round in range(rounds):
        for _ in range(STRETCH):
            times[LEARN].append(seconds(learn))
            times[FEED_BETWEEN].append(seconds(feed))
        times[FEED] += [seconds(feed) for _ in range(STRETCH)]
        times[USUAL] += [seconds(lambda: next(usual)) for _ in range(STRETCH)]
    return {name: statistics.median(taken[STRETCH:]) for name, taken in times.items()}  # the first round warms up


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=30, choices=range(2, 40), metavar="2..39")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    medians = measure(arguments.rounds)
    share, speedup = medians[FEED_BETWEEN] / medians[LEARN], medians[USUAL] / medians[FEED]
    print(f"batch of {BATCH}, {arguments.threads} threads, torch {torch.__version__}; milliseconds per batch (median)")
    for name, median in medians.items():
        print(f"  {name:<28}{median * 1e3:8.3f}")
    print(f"feeding / learning: {share:.2%} (target: at most {MOST_OF_A_STEP:.0%})")
    print(f"image by image / feeder: {speedup:.1f}x (target: at least {LEAST_SPEEDUP}x)")
    return 0 if share <= MOST_OF_A_STEP and speedup >= LEAST_SPEEDUP else 1


if __name__ == "__main__":
    sys.exit(main())
