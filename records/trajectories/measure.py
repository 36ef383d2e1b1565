"""How far BCSC at rate eta strays from SGD at rate eta / M: both from the same weights, on the same mini-batches.

    python records/trajectories/measure.py          # writes distances.json beside itself; about six minutes on one core
    python records/trajectories/measure.py --show   # puts the record's table into docs/why.md

Distances are those between the weight vectors, divided by the distance that SGD has come from the start. Two yardsticks
stand beside them: SGD at eta / M on other shuffles of the same images, and BCSC at the same rate on other blocks.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bcsc import BlockCyclic, BlockCyclicSampler, data, models
from bcsc.files import write_whole
from bcsc.origin import describe_origin

IMAGES, BATCH, MOMENTUM, DECAY = 10_000, 128, 0.9, 5e-4
BLOCKS, RATES = (2, 8), (0.01, 0.03, 0.1)
STEPS = (10, 30, 100, 300, 1000)
RECORD = Path(__file__).with_name("distances.json")
PAGE = Path(__file__).parents[2] / "docs" / "why.md"


def batches(sampler: BlockCyclicSampler, feeder: data.Feeder) -> Iterator[tuple[Tensor, Tensor]]:
    """The mini-batches of BCSC, epoch after epoch."""
    epoch = 0
    while True:
        yield from (feeder.batch(indices) for indices in sampler.index_batches(epoch))
        epoch += 1


def trajectory(feeder: data.Feeder, num_blocks: int, *, rate: float, order: int, blocks: int | None) -> list[Tensor]:
    """The weights after each of STEPS; ``order`` seeds the shuffles, ``blocks`` the blocks (none: plain SGD)."""
    network: nn.Module = models.build("lenet4", seed=0)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(
        network.parameters(), lr=rate, momentum=MOMENTUM, weight_decay=DECAY, fused=True
    )
    sampler = BlockCyclicSampler(IMAGES, BATCH, num_blocks, seed=order)
    if blocks is not None:
        optimizer = BlockCyclic(optimizer, num_blocks, seed=blocks, steps_per_epoch=len(sampler))
    points = [flat(network)]
    for step, (images, labels) in enumerate(batches(sampler, feeder), start=1):
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()
        if step in STEPS:
            points.append(flat(network))
        if step == STEPS[-1]:
            return points
    raise AssertionError("the batches never end")


def flat(network: nn.Module) -> Tensor:
    """All weights as one vector."""
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def compare(feeder: data.Feeder, num_blocks: int, rate: float) -> dict[str, object]:
    """One row: the distances after each of STEPS."""
    start, *sgd = trajectory(feeder, num_blocks, rate=rate / num_blocks, order=0, blocks=None)
    others = {
        "BCSC": trajectory(feeder, num_blocks, rate=rate, order=0, blocks=0),
        "BCSC, other blocks": trajectory(feeder, num_blocks, rate=rate, order=0, blocks=1),
        "SGD, other shuffles": trajectory(feeder, num_blocks, rate=rate / num_blocks, order=1, blocks=None),
        "SGD at the whole rate": trajectory(feeder, num_blocks, rate=rate, order=0, blocks=None),
    }
    distances = {
        name: [float((a - b).norm() / (b - start).norm()) for a, b in zip(points[1:], sgd, strict=True)]
        for name, points in others.items()
    }
    return {"M": num_blocks, "eta": rate, "travelled": [float((w - start).norm()) for w in sgd], "distance": distances}


def table(record: dict[str, Any]) -> str:
    """The distances as docs/why.md shows them."""
    heads = ["M", "rate", "compared with SGD at rate / M", *(f"{step} steps" for step in record["steps"])]
    lines = ["| " + " | ".join(heads) + " |", "| ---: | ---: | --- |" + " ---: |" * len(record["steps"])]
    for row in record["rows"]:
        for name, distances in row["distance"].items():
            numbers = " | ".join(f"{distance:.2f}" for distance in distances)
            lines.append(f"| {row['M']} | {row['eta']:g} | {name} | {numbers} |")
    return "\n".join(lines) + "\n"


def show() -> None:
    """Put the table of the record into the page, between its marks."""
    lines = table(json.loads(RECORD.read_text()))
    text, found = re.subn(r"(<!-- distances -->\n)[^<]*(<!-- end -->)", rf"\1\n{lines}\n\2", PAGE.read_text())
    if found != 1:
        raise SystemExit(f"{PAGE} has no place between <!-- distances --> and <!-- end -->.")
    write_whole(PAGE, text.encode())


def measure() -> None:
    """Measure, and write the record."""
    torch.set_num_threads(1)
    dataset = data.load("cifar10").first(IMAGES)
    feeder = data.Feeder(dataset.train_images, dataset.train_labels, mean=dataset.source.mean, std=dataset.source.std)
    rows = []
    for num_blocks in BLOCKS:
        for rate in RATES:
            rows.append(compare(feeder, num_blocks, rate))
            print(json.dumps(rows[-1]), flush=True)
    record = {"origin": describe_origin("cpu"), "images": IMAGES, "steps": STEPS, "rows": rows}
    write_whole(RECORD, (json.dumps(record, indent=1) + "\n").encode())


if __name__ == "__main__":
    show() if "--show" in sys.argv else measure()
