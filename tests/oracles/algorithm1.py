"""Algorithm 1 of the paper and its relatives, as slow scalar loops in double precision. Never imported by src.

The randomness (permutations, shuffles, random picks) comes in from outside; everything else is written out here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Gradient = Callable[[list[float], Sequence[int]], list[float]]


@dataclass
class Recipe:
    """Learning rate, momentum, weight decay and the reading of Eq. 9."""

    lr: float
    momentum: float
    weight_decay: float
    mask: str


@dataclass
class Iterate:
    """w, and the velocity of every scalar."""

    w: list[float]
    v: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.v = [0.0 for _ in self.w]


def cut(permutation: Sequence[int], num_blocks: int) -> list[list[int]]:
    """P = [P_1 | ... | P_M]: consecutive pieces of the permutation, the larger ones first."""
    m = len(permutation)
    blocks, start = [], 0
    for j in range(num_blocks):
        size = m // num_blocks + (1 if j < m % num_blocks else 0)
        blocks.append(list(permutation[start : start + size]))
        start += size
    return blocks


def move(x: Iterate, g: list[float], block: Sequence[int], recipe: Recipe) -> None:
    """One inner step on the gradient g with the given block active."""
    old = list(x.w)
    for i in range(len(x.w)):
        inside = i in block
        if recipe.mask == "all" and not inside:
            continue
        gradient = g[i] if inside or recipe.mask != "gradient" else 0.0
        x.v[i] = recipe.momentum * x.v[i] + gradient + recipe.weight_decay * old[i]
        if inside or recipe.mask == "gradient":
            x.w[i] = old[i] - recipe.lr * x.v[i]


def bcsc_epoch(
    x: Iterate,
    gradient: Gradient,
    permutation: Sequence[int],
    shuffles: Sequence[Sequence[int]],
    batch_size: int,
    recipe: Recipe,
) -> None:
    """One epoch of Algorithm 1; RBC when all shuffles are the same one, SGD when there is one."""
    blocks = cut(permutation, len(shuffles))
    chi = [list(shuffle) for shuffle in shuffles]
    while any(chi):  # t
        for j in range(len(shuffles)):
            beta, chi[j] = chi[j][:batch_size], chi[j][batch_size:]
            move(x, gradient(x.w, beta), blocks[j], recipe)


def random_epoch(
    x: Iterate,
    gradient: Gradient,
    permutation: Sequence[int],
    num_blocks: int,
    picks: Sequence[tuple[Sequence[int], int]],
    recipe: Recipe,
) -> None:
    """One epoch of SBC (or of BCD, when every pick is the whole set): (samples, block) pairs drawn at random."""
    blocks = cut(permutation, num_blocks)
    for samples, j in picks:
        move(x, gradient(x.w, samples), blocks[j], recipe)


def tanh_regression(inputs: Sequence[Sequence[float]], targets: Sequence[float]) -> Gradient:
    """The gradient of the mean of (tanh(w . x + b) - y)^2 over the given samples; b is the last entry of w."""

    def gradient(w: list[float], samples: Sequence[int]) -> list[float]:
        total = [0.0] * len(w)
        for i in samples:
            x = [*inputs[i], 1.0]
            prediction = math.tanh(sum(w[k] * x[k] for k in range(len(w))))
            slope = 2.0 * (prediction - targets[i]) * (1.0 - prediction * prediction)
            for k in range(len(w)):
                total[k] += slope * x[k] / len(samples)
        return total

    return gradient
