"""How long a run would take on this machine, from a few timed steps of its network."""

import math
import time
from collections.abc import Callable
from functools import cache

from bcsc.runs.spec import RunSpec

# The steps to time, until enough time is spent. The quickest counts: the first warms up, and others use the machine.
BATCH_SIZES = (8, 8, 32, 128, 128, 128)
ENOUGH_SECONDS = 2.0
EVALUATION_COST = 1 / 3  # of a training step: the forward pass without the backward one


def estimate_seconds(spec: RunSpec, seconds_per_image: Callable[[str, str], float] | None = None) -> float:
    """The time of the training steps and of the evaluations; reading data comes on top, and is small."""
    from bcsc.data.registry import find_source
    from bcsc.optim.methods import METHODS

    source, method = find_source(spec.data), METHODS[spec.method]
    num_samples = min(spec.subset or sum(source.train_counts), sum(source.train_counts))
    passes = 1 if method.one_pass else method.num_blocks(spec.blocks)
    images = spec.epochs * (num_samples * passes + EVALUATION_COST * sum(source.test_counts))
    return images * (seconds_per_image or measure_seconds_per_image)(spec.model, spec.data)


@cache
def measure_seconds_per_image(model: str, data: str) -> float:
    """The time of a forward and a backward pass per image."""
    import torch

    from bcsc.data.registry import find_source
    from bcsc.models import build

    source = find_source(data)
    network = build(model, source.num_classes, source.channels, image_size=source.size, seed=0)
    best, started = math.inf, time.perf_counter()
    for batch_size in BATCH_SIZES:
        images = torch.zeros(batch_size, source.channels, source.size, source.size)
        began = time.perf_counter()
        network(images).sum().backward()
        ended = time.perf_counter()
        best = min(best, (ended - began) / batch_size)
        if ended - started > ENOUGH_SECONDS:
            break
    return best
