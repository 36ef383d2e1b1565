"""Goal 1: an inner step of BCSC against a bare forward-backward, and where the rest of the time goes."""

import copy
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import cast

import torch
from torch import Tensor

from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.runs.batches import FeederData
from bcsc.runs.watch import PlainWatcher
from bcsc.training.trainer import Batch, Trainer
from bcsc.training.watcher import Watcher
from benchmarks import problem
from benchmarks.clock import Ratio, Size, now, ratio, seconds

GOALS = {"lenet4": 1.05, "mobilenet": 1.02, "resnet18": 1.01}
STEPS = {"lenet4": 16 * problem.CYCLE, "mobilenet": 2 * problem.CYCLE, "resnet18": problem.BLOCKS}
CYCLES = {"lenet4": problem.CYCLE, "mobilenet": 4, "resnet18": 2}  # beside the larger ones feeding is nothing


class StepClock(Watcher):
    """Times a trainer's inner steps, and between any two of them the parts that such a step is made of."""

    def __init__(self, trainer: Trainer) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        twin = copy.deepcopy(trainer.model)
        self._forward_backward = problem.ForwardBackward(twin)
        self._blockwise, self._base = problem.blockwise(twin), problem.fused_sgd(twin)
        self._batches = problem.endless_batches(problem.feeder(50_000))
        self._resumed = 0.0

    def begin_epoch(self, epoch: int, step: int, steps: int, samples_per_step: float) -> None:
        """The first step begins."""
        self._resumed = now()

    def after_step(self, loss: Tensor) -> None:
        """A step ends; the parts are timed; the next one begins."""
        self.times["whole"].append(now() - self._resumed)
        self.times["forward-backward"].append(seconds(self._forward_backward))
        self.times["feeding"].append(seconds(lambda: next(self._batches)))
        self.times["step"].append(seconds(self._blockwise.step))
        self.times["base step"].append(seconds(self._base.step))
        self._resumed = now()


def per_step(times: Sequence[float], cycle: int) -> float:
    """The median over cycles of the mean of a cycle's steps; the first cycle warms up."""
    cycles = [times[i : i + cycle] for i in range(cycle, len(times), cycle)]
    return statistics.median(map(statistics.mean, cycles))


def inner_step(model: str, num_steps: int) -> Ratio:
    """Whole steps over bare ones, and what a step is made of."""
    trainer = problem.trainer(model, problem.BATCH * num_steps // problem.BLOCKS, problem.BLOCKS)
    clock = StepClock(trainer)
    trainer.run(lambda: None, lambda: False, clock)
    split = {name: per_step(times, CYCLES[model]) for name, times in clock.times.items()}
    split["masking"] = split["step"] - split["base step"]
    split["unaccounted"] = split["whole"] - split["forward-backward"] - split["feeding"] - split.pop("step")
    value = split["whole"] / split["forward-backward"]
    return Ratio(1, f"BCSC inner step / bare forward-backward, {model}", value, GOALS[model], split)


class SameBatch(FeederData):
    """Hands out one batch again and again, made before."""

    def training_batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """As many as an epoch has."""
        batch = next(super().training_batches(epoch, start))
        return repeat(batch, self.batches_per_epoch - start)


class Bookkeeper(Trainer):
    """Computes nothing and moves nothing: what is left is the bookkeeping."""

    def _learn_from(self, batch: Batch) -> None:
        self._own_losses.append(torch.zeros(()))
        cast(BlockCyclic, self.optimizer).advance()


class BookkeepingClock(PlainWatcher):
    """Times what a trainer does between two bare forward-backwards."""

    def __init__(self) -> None:
        super().__init__(epochs=1)
        self.times: list[float] = []
        self.forward_backward = problem.ForwardBackward(problem.lenet4())
        self._resumed = now()

    def after_step(self, loss: Tensor) -> None:
        """A step without its computing ends; the next one begins after the computing."""
        super().after_step(loss)
        self.times.append(now() - self._resumed)
        self.forward_backward()
        self._resumed = now()

    def say(self, text: str) -> None:
        """Not in the middle of a table."""


def bookkeeping(num_steps: int, whole: float) -> Ratio:
    """What the trainer does beside feeding, computing and stepping, as a share of a LeNet4 step."""
    num_images = problem.BATCH * num_steps // problem.BLOCKS
    trainer = problem.trainer("lenet4", num_images, problem.BLOCKS, kind=Bookkeeper, data_kind=SameBatch)
    clock = BookkeepingClock()
    trainer.run(lambda: None, lambda: False, clock)
    times = {"bookkeeping": statistics.mean(clock.times[1:]), "whole": whole}  # the mean: some steps look at the losses
    return ratio(1, "bookkeeping / BCSC inner step, lenet4", times, 0.03)


def measure(size: Size) -> list[Ratio]:
    """The three networks, and shares of LeNet4's step; the tiny size has LeNet4 alone."""
    num_steps = {"lenet4": 2 * problem.CYCLE} if size.tiny else STEPS
    steps = [inner_step(model, number) for model, number in num_steps.items()]
    lenet4 = steps[0].seconds
    feeding = {name: lenet4[name] for name in ("feeding", "forward-backward")}
    return [
        *steps,
        ratio(1, "feeding a batch of 128 / forward-backward, lenet4", feeding, 0.02),
        bookkeeping(size.pick(160, 8), lenet4["whole"]),
    ]
