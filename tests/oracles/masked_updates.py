"""Masked updates at one gradient per step, as slow scalar loops in double precision. Never imported by src.

Which units move comes in from outside; how a base proposes a move, how far a unit goes, and Magma's score are written
out here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Base = Callable[[list[float], list[float]], list[float]]  # where the base would go, from w on the gradient g


def sgd(lr: float, momentum: float, weight_decay: float) -> Base:
    """Momentum with decay that goes through the gradient."""
    velocity: dict[int, float] = {}

    def propose(w: list[float], g: list[float]) -> list[float]:
        for i in range(len(w)):
            velocity[i] = momentum * velocity.get(i, 0.0) + g[i] + weight_decay * w[i]
        return [w[i] - lr * velocity[i] for i in range(len(w))]

    return propose


def adamw(lr: float, betas: tuple[float, float], weight_decay: float, eps: float = 1e-8) -> Base:
    """Adam with decay that does not go through the gradient: a move that is no multiple of the rate's part alone."""
    first: dict[int, float] = {}
    second: dict[int, float] = {}
    count = 0

    def propose(w: list[float], g: list[float]) -> list[float]:
        nonlocal count
        count += 1
        result = []
        for i in range(len(w)):
            first[i] = betas[0] * first.get(i, 0.0) + (1 - betas[0]) * g[i]
            second[i] = betas[1] * second.get(i, 0.0) + (1 - betas[1]) * g[i] * g[i]
            direction = first[i] / (1 - betas[0] ** count) / (math.sqrt(second[i] / (1 - betas[1] ** count)) + eps)
            result.append(w[i] * (1 - lr * weight_decay) - lr * direction)
        return result

    return propose


@dataclass
class Magma:
    """The average of the gradients, and a score for each unit, from 1 on."""

    average: dict[int, float] = field(default_factory=dict)
    scores: dict[int, float] = field(default_factory=dict)

    def learn(self, g: list[float], units: Sequence[Sequence[int]]) -> list[float]:
        """The score of every unit after this gradient."""
        for i in range(len(g)):
            self.average[i] = 0.9 * self.average.get(i, 0.0) + 0.1 * g[i]
        for number, unit in enumerate(units):
            dot = sum(self.average[i] * g[i] for i in unit)
            lengths = math.sqrt(sum(self.average[i] ** 2 for i in unit)) * math.sqrt(sum(g[i] ** 2 for i in unit))
            cosine = dot / lengths if lengths > 0 else 0.0
            fresh = 1.0 / (1.0 + math.exp(-cosine / 2.0))
            self.scores[number] = 0.9 * self.scores.get(number, 1.0) + 0.1 * fresh
        return [self.scores[number] for number in range(len(units))]


def masked_step(
    w: list[float], g: list[float], base: Base, units: Sequence[Sequence[int]], factors: Sequence[float]
) -> list[float]:
    """The units move ``factors`` times as far as the base proposes; what is in no unit moves as the base does."""
    proposed = base(list(w), g)
    result = list(proposed)
    for unit, factor in zip(units, factors, strict=True):
        for i in unit:
            result[i] = w[i] + factor * (proposed[i] - w[i]) if factor else w[i]
    return result
