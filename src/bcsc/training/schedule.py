"""The learning rate of every epoch, as a pure function."""

import math

from bcsc.choices import Schedule


def learning_rate(schedule: Schedule, start: float, epoch: int, epochs: int) -> float:
    """The rate in ``epoch`` (from 0) of ``epochs``.

    The staircase is the paper's: a tenth from the middle on, a hundredth from three quarters on.
    """
    if schedule == "constant":
        return start
    if schedule == "cosine":
        return start * 0.5 * (1 + math.cos(math.pi * epoch / epochs))
    decades = (2 * epoch >= epochs) + (4 * epoch >= 3 * epochs)
    return start / (1, 10, 100)[decades]
