"""Goal 1: an inner step of BCSC against a bare forward-backward, and where the rest of the time goes."""

import copy
import statistics
from collections import defaultdict

import torch
from torch import Tensor

from bcsc.benchmarking import problem
from bcsc.benchmarking.clock import Ratio, Size, now, seconds
from bcsc.data.feeding import Feeder
from bcsc.running.watch import SilentWatcher
from bcsc.training.trainer import Trainer

NETWORKS = {"lenet4": (128, 1.05), "mobilenet": (128, 1.02), "resnet18": (32, 1.02)}  # batch size, goal


class StepClock(SilentWatcher):
    """Times a trainer's inner steps, and between any two of them the parts that such a step is made of."""

    def __init__(self, trainer: Trainer, batch_size: int) -> None:
        self.times: dict[str, list[float]] = defaultdict(list)
        twin = copy.deepcopy(trainer.model)
        self._forward_backward = problem.ForwardBackward(twin, batch_size)
        self._blockwise, self._base = problem.blockwise(twin), problem.fused_sgd(twin)
        self._feeder: Feeder = problem.random_feeder(4 * batch_size)
        self._indices = torch.randperm(4 * batch_size)[:batch_size]
        self._resumed = 0.0

    def begin_epoch(self, epoch: int, step: int, steps: int, samples_per_step: float) -> None:
        """The first step begins."""
        self._resumed = now()

    def after_step(self, loss: Tensor) -> None:
        """A step ends; the parts are timed; the next one begins."""
        self.times["whole"].append(now() - self._resumed)
        step = len(self.times["whole"])
        self.times["forward-backward"].append(seconds(self._forward_backward))
        self.times["feeding"].append(seconds(lambda: self._feeder.batch(self._indices, 0, step)))
        self.times["step"].append(seconds(self._blockwise.step))
        self.times["base step"].append(seconds(self._base.step))
        self._resumed = now()


def inner_step(model: str, batch_size: int, num_steps: int, most: float) -> Ratio:
    """Whole steps over bare ones; what is neither feeding nor the optimizer is bookkeeping."""
    trainer = problem.trainer(model, batch_size * num_steps // problem.BLOCKS, problem.BLOCKS, batch_size)
    clock = StepClock(trainer, batch_size)
    trainer.run(lambda: None, lambda: False, clock)
    medians = {name: statistics.median(times[1:]) for name, times in clock.times.items()}
    whole, bare = medians["whole"], medians["forward-backward"]
    split = {
        "whole": whole,
        "forward-backward": bare,
        "feeding": medians["feeding"],
        "masking": medians["step"] - medians["base step"],
        "base step": medians["base step"],
        "bookkeeping": whole - bare - medians["feeding"] - medians["step"],
    }
    return Ratio(1, f"BCSC inner step / bare forward-backward, {model}, batch {batch_size}", whole / bare, most, split)


def measure(size: Size) -> list[Ratio]:
    """The three networks; the tiny size has one."""
    steps = {"lenet4": size.pick(120, 8), "mobilenet": 16, "resnet18": 8}
    networks = {"lenet4": NETWORKS["lenet4"]} if size.tiny else NETWORKS
    return [inner_step(model, batch, steps[model], most) for model, (batch, most) in networks.items()]
