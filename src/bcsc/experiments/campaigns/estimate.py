"""How long runs would take on this machine: from a table of what networks cost, or from timing each of them."""

import math
import time
from collections.abc import Callable, Mapping
from functools import cache

from bcsc.runs.spec import RunSpec

# Forward and backward of a 32 x 32 image, as multiples of LeNet4's: measured in batches of 32 on one thread of a CPU.
COSTS: Mapping[str, float] = {
    "lenet4": 1,
    "mobilenet": 80,
    "shufflenet": 120,
    "denseconv-12": 370,
    "resnet18": 400,
    "senet18": 430,
    "vgg19": 450,
    "resnext29-32x4d": 1000,
    "denseconv": 1300,
    "resnext29": 1350,
    "googlenet": 1400,
    "dpn92": 4000,
}
# The steps to time, until enough time is spent. The quickest counts: the first warms up, and others use the machine.
BATCH_SIZES = (8, 8, 32, 128, 128, 128)
ENOUGH_SECONDS = 2.0
EVALUATION_COST = 1 / 3  # of a training step: the forward pass without the backward one

SecondsPerImage = Callable[[str, str], float]  # of a network and a data set


def estimate_seconds(spec: RunSpec, seconds_per_image: SecondsPerImage) -> float:
    """The time of the training steps and of the evaluations; reading data comes on top, and is small."""
    from bcsc.data.registry import find_source
    from bcsc.optim.methods import METHODS

    source, method = find_source(spec.data), METHODS[spec.method]
    num_samples = min(spec.subset or sum(source.train_counts), sum(source.train_counts))
    passes = 1 if method.one_pass else method.num_blocks(spec.blocks)
    images = spec.epochs * (num_samples * passes + EVALUATION_COST * sum(source.test_counts))
    return images * seconds_per_image(spec.model, spec.data)


def tabled_seconds_per_image(model: str, data: str) -> float:
    """From the table, by the speed of LeNet4 here; a network that is not in it is timed."""
    if model not in COSTS:
        return measured_seconds_per_image(model, data)
    return COSTS[model] * measured_seconds_per_image("lenet4", data)


@cache
def measured_seconds_per_image(model: str, data: str) -> float:
    """The time of a forward and a backward pass per image, from a few timed steps."""
    import torch

    from bcsc.data.registry import find_source
    from bcsc.models import build

    source = find_source(data)
    image_size = source.size if model == "lenet4" else 32
    network = build(model, source.num_classes, source.channels, image_size=image_size, seed=0)
    best, started = math.inf, time.perf_counter()
    for batch_size in BATCH_SIZES:
        images = torch.zeros(batch_size, source.channels, image_size, image_size)
        began = time.perf_counter()
        network(images).sum().backward()
        ended = time.perf_counter()
        best = min(best, (ended - began) / batch_size)
        if ended - started > ENOUGH_SECONDS:
            break
    return best
