"""The pictures of docs/tutorial.md, drawn from the blocks and batches of the library: ``make pictures``."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import nn

import bcsc

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLOURS = ("#0072b2", "#e69f00", "#009e73")  # apart for every eye
ON_COLOUR = {COLOURS[1]: "#222"}  # where white could not be read
EVERYTHING = "#5f6b7a"
NUM_SAMPLES, BATCH_SIZE, NUM_BLOCKS = 6, 2, 3
CELL = 26
SHOWN = {"sgd": "SGD", "rbc": "RBC", "sbc": "SBC", "bcsc": "BCSC"}


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    return {
        "blocks.svg": blocks_picture(),
        "epoch.svg": schedules_picture(["bcsc"]),
        "methods.svg": schedules_picture(["sgd", "rbc", "sbc", "bcsc"]),
    }


def build_network() -> nn.Sequential:
    """The network of the tutorial: 43 scalars."""
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def blocks_picture() -> str:
    """The scalars of a small network in two epochs, each coloured by its block."""
    network = build_network()
    names = [f"{kind} {place}" for place in (1, 2) for kind in ("weight", "bias")]
    optimizer = bcsc.BlockCyclic(torch.optim.SGD(network.parameters(), lr=0.1), NUM_BLOCKS)
    parts, top = [], 10
    for epoch in (0, 1):
        optimizer.set_epoch(epoch)
        labels = [tensor.reshape(len(tensor), -1).tolist() for tensor in optimizer.epoch_blocks().labels]
        parts.append(text(10, top + 14, f"epoch {epoch}", bold=True))
        left = 10
        for name, rows in zip(names, labels, strict=True):
            parts.append(text(left, top + 36, name))
            parts += [
                cell(left + x * CELL, top + 44 + y * CELL, COLOURS[block], str(block))
                for y, row in enumerate(rows)
                for x, block in enumerate(row)
            ]
            left += max(len(rows[0]) * CELL, 52) + 22
        top += 44 + 5 * CELL + 24
    return svg(
        left, top, [*parts, *legend(10, top)], "The scalars of a small network, coloured by block, in two epochs"
    )


def schedules_picture(names: Sequence[str]) -> str:
    """For some methods, which samples every inner step of an epoch sees and which block they move."""
    parts, top, width = [], 10, 0
    for name in names:
        steps = schedule(name)
        parts.append(text(10, top + 14, f"{SHOWN[name]}: one epoch", bold=True))
        parts.append(text(10, top + 36, "inner step"))
        parts += [text(10, top + 44 + place * CELL + 16, f"sample {place}") for place in range(NUM_SAMPLES)]
        for number, (batch, block) in enumerate(steps):
            left = 88 + number * CELL + (number // (NUM_BLOCKS if name != "sgd" else 1)) * 8
            for sample in range(NUM_SAMPLES):
                place = left, top + 44 + sample * CELL
                colour, label = (EVERYTHING, "all") if block is None else (COLOURS[block], str(block))
                parts.append(cell(*place, colour, label) if sample in batch else cell(*place, "#eef0f3"))
            parts.append(text(left + CELL / 2, top + 36, str(number), centred=True))
            width = max(width, left + CELL)
        top += 44 + NUM_SAMPLES * CELL + 24
    about = f"Which samples move which block in an epoch of {', '.join(SHOWN[name] for name in names)}"
    return svg(max(width, 420), top, [*parts, *legend(10, top, everything="sgd" in names)], about)


def schedule(name: str) -> list[tuple[list[int], int | None]]:
    """The samples and the block of every inner step of epoch 0 of a method; None where everything moves."""
    optimizer, sampler = bcsc.build_method(
        name,
        torch.optim.SGD(build_network().parameters(), lr=0.1),
        num_samples=NUM_SAMPLES,
        batch_size=BATCH_SIZE,
        num_blocks=NUM_BLOCKS,
    )
    batches = [batch.tolist() for batch in sampler.index_batches(epoch=0)]
    blocks = [None if optimizer.num_blocks == 1 else optimizer.block_at(step) for step in range(len(batches))]
    return list(zip(batches, blocks, strict=True))


def legend(left: float, top: float, everything: bool = False) -> Iterable[str]:
    """What the colours stand for."""
    entries = [(COLOURS[block], f"block {block}") for block in range(NUM_BLOCKS)]
    for place, (colour, name) in enumerate([*entries, (EVERYTHING, "everything")][: NUM_BLOCKS + everything]):
        yield cell(left + place * 92, top, colour)
        yield text(left + place * 92 + CELL + 6, top + 18, name)


def cell(left: float, top: float, colour: str, label: str = "") -> str:
    """A square, with a word in it."""
    size = CELL - 2
    square = f'<rect x="{left:g}" y="{top:g}" width="{size}" height="{size}" rx="3" fill="{colour}"/>'
    word = (
        text(left + size / 2, top + size / 2 + 4, label, centred=True, colour=ON_COLOUR.get(colour, "#fff"))
        if label
        else ""
    )
    return square + word


def text(
    left: float, top: float, words: str, *, bold: bool = False, centred: bool = False, colour: str = "#222"
) -> str:
    """Words, from a place on or around it."""
    more = (' font-weight="bold"' if bold else "") + (' text-anchor="middle"' if centred else "")
    return f'<text x="{left:g}" y="{top:g}" fill="{colour}"{more}>{words}</text>'


def svg(width: float, height: float, parts: Iterable[str], about: str) -> str:
    """A picture on white, so that it can be seen on a dark page."""
    box = f'viewBox="0 0 {width + 10:g} {height + CELL + 10:g}"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" font-family="sans-serif" font-size="12">'
    lines = [
        start,
        f"<title>{about}</title>",
        '<rect width="100%" height="100%" rx="8" fill="#fff"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, content in pictures().items():
        (FOLDER / name).write_text(content)
