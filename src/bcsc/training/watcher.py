"""Watcher: who is told how a run goes, and the time that steps take. Subclass it to follow a run of your own."""

import time
from typing import Self

from torch import Tensor

from bcsc.training.history import EpochRow


class Watcher:
    """Is told what happens, and does nothing about it; a subclass overrides what it wants to hear.

    A run calls these methods on every rank, between steps. They may read, but must not change what is trained.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Put away what ``__enter__`` opened."""

    def begin_epoch(self, epoch: int, step: int, steps: int, samples_per_step: float) -> None:
        """Hear that ``epoch`` (from 0) goes on from mini-batch ``step`` of its ``steps``."""

    def after_step(self, loss: Tensor) -> None:
        """Hear the loss of one mini-batch; reading its value waits for the device."""

    def end_epoch(self, row: EpochRow) -> None:
        """Hear what the epoch measured, once it is saved."""

    def estimate(self, seconds: float) -> None:
        """Hear how long the rest will take, once some steps of an epoch are timed."""

    def say(self, text: str) -> None:
        """Hear a message for people."""


class StepTimer:
    """Times a few steps after some to warm up."""

    WARM_UP, TIMED = 3, 10

    seconds_per_step: float  # once there are enough
    _began: float

    def __init__(self) -> None:
        self._num_steps = 0

    def has_timed_enough(self) -> bool:
        """Count one step; true once, after the last of the timed ones."""
        self._num_steps += 1
        if self._num_steps == self.WARM_UP:
            self._began = time.perf_counter()
        if self._num_steps != self.WARM_UP + self.TIMED:
            return False
        self.seconds_per_step = (time.perf_counter() - self._began) / self.TIMED
        return True
