"""Goal 4: drawing the blocks of DPN92."""

import torch

from bcsc.optim.partition import draw_labels
from bcsc.seeding import stream
from benchmarks.clock import Ratio, Size, interleaved, ratio
from benchmarks.problem import BLOCKS

DPN92_SCALARS = 34_236_634


def measure(size: Size) -> list[Ratio]:
    """Time against a permutation of the same length, and the memory kept."""
    num_scalars = size.pick(DPN92_SCALARS, 1_000)
    contestants = {
        "labels": lambda: draw_labels(num_scalars, BLOCKS, stream(0, "benchmark")),
        "randperm": lambda: torch.randperm(num_scalars, generator=stream(0, "benchmark")),
    }
    drawing = ratio(4, "drawing the blocks of DPN92 / torch.randperm", interleaved(contestants, size.pick(3, 1)), 1.0)
    kept = draw_labels(num_scalars, BLOCKS, stream(0, "benchmark")).nbytes / num_scalars
    return [drawing, Ratio(4, "bytes kept per scalar", kept, 1.0, {})]
