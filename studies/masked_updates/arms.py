"""What is compared: a run of the language model, the arms, and in which order they are run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bcsc.choices import Granularity, Order
from studies.masked_updates.text import Part


@dataclass(frozen=True, kw_only=True)
class LanguageRun:
    """Everything that decides what a run computes."""

    base: str = "rmsprop"  # or adamw, sgd
    lr: float = 0.0025
    schedule: str = "cosine"  # after a warm-up, or constant
    blocks: int = 1  # M
    order: Order = "cyclic"
    redraw: int = 0  # fresh blocks after so many steps; 0: the same all the time
    granularity: Granularity = "element"
    rescale: bool = True
    align: bool = False
    exclude: bool = False  # the embeddings and the norms
    steps: int = 1000
    warm_up: int = 50
    evaluate_every: int = 250
    batch_size: int = 32
    context: int = 64
    width: int = 128
    depth: int = 2
    seed: int = 0
    measured_on: Part = "validation"


# Each at one gradient per step. Magma is as its authors have it: units are tensors, moves are not rescaled.
ARMS: Mapping[str, Mapping[str, Any]] = {
    "dense": {},
    "cyclic, M = 2": {"blocks": 2, "redraw": 2},
    "SkipUpdate": {"blocks": 2, "order": "bernoulli"},
    "Magma": {
        "blocks": 2,
        "order": "bernoulli",
        "granularity": "tensor",
        "align": True,
        "rescale": False,
        "exclude": True,
    },
    "cyclic, M = 4": {"blocks": 4, "redraw": 4},
    "cyclic, M = 8": {"blocks": 8, "redraw": 8},
    "cyclic by tensor, M = 2": {"blocks": 2, "redraw": 2, "granularity": "tensor", "exclude": True},
    "SkipUpdate by tensor": {"blocks": 2, "order": "bernoulli", "granularity": "tensor", "exclude": True},
    "cyclic, M = 2, the same blocks always": {"blocks": 2},
}
DECISIVE, OTHERS = tuple(ARMS)[:4], tuple(ARMS)[4:]

# With what runs of a schedule are made. Without a warm-up RMSprop begins with steps of ten times the rate.
SCHEDULES: Mapping[str, Mapping[str, Any]] = {
    "constant": {"schedule": "constant"},
    "cosine": {"schedule": "cosine"},
    "no warm-up": {"schedule": "constant", "warm_up": 0},
}

# Base, schedule and arms, the decisive ones first: whenever it is stopped, what is there can be reported.
STAGES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("rmsprop", "constant", DECISIVE),
    ("rmsprop", "no warm-up", DECISIVE[:3]),
    ("adamw", "constant", DECISIVE),
    ("sgd", "constant", DECISIVE),
    ("rmsprop", "constant", OTHERS),
    ("adamw", "constant", OTHERS),
    ("sgd", "constant", OTHERS),
    ("rmsprop", "cosine", DECISIVE),
)

RATES_PER_DECADE = 5  # a grid of rates: 0.001, 0.0016, 0.0025, 0.004, 0.0063, 0.01, ...
FIRST_PLACE = {"rmsprop": -12, "adamw": -12, "sgd": -3}  # of dense arms, on the grid: 0.004 and 0.25
MOST_RATES = 9  # of an arm

TUNING_SEED, SEEDS = 1000, (0, 1, 2)


def rate_on_grid(place: int) -> float:
    """A rate, to two digits."""
    return float(f"{10 ** (place / RATES_PER_DECADE):.2g}")
