"""The order of things: epochs, steps, learning rate, testing, saving. The only loop that trains."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import torch
from torch import Tensor, nn

from bcsc.distributed.collectives import Ranks
from bcsc.distributed.division import Division
from bcsc.errors import Diverged, Interrupted, InvalidArgumentError
from bcsc.seeding import stream_key
from bcsc.training.checkpoint import checked_progress
from bcsc.training.history import EpochRow, per_second
from bcsc.training.rank_state import average_buffers, rank_states, restore_rank_state
from bcsc.training.watcher import StepTimer, Watcher

LossFunction = Callable[[Tensor, Tensor], Tensor]

STEPS_BETWEEN_LOOKS = 64  # the losses are looked at together, as looking waits for the device
STEPS_BETWEEN_QUESTIONS = 8  # whether another rank was asked to stop, which costs a message


class Batch(NamedTuple):
    """This rank's part of a mini-batch: how many of its samples count, and how many the whole mini-batch has."""

    inputs: Tensor
    labels: Tensor
    num_counted: int
    num_samples: int


class SteppedOptimizer(Protocol):
    """What the trainer needs beyond a torch optimizer: to be told the epoch, and to tell where it stands."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...
    @property
    def inner_step(self) -> int: ...
    def block_at(self, inner_step: int) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def step(self) -> Any: ...
    def zero_grad(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Data(Protocol):
    """Batches on the device. A step accumulates the gradients of ``batches_per_step`` training batches.

    The numbers are those of all ranks together; the batches are this rank's.
    """

    num_samples: int  # in the training set
    num_test_samples: int
    samples_per_epoch: int  # each counted as often as its gradient is computed
    batches_per_epoch: int
    batches_per_step: int
    division: Division

    def training_batches(self, epoch: int, start: int) -> Iterator[Batch]: ...
    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to train: what the objects themselves do not know."""

    epochs: int
    learning_rate: Callable[[int], float]
    loss_fn: LossFunction
    seed: int
    device: torch.device
    autocast: torch.dtype | None = None
    checkpoint_every: int | None = None  # inner steps; every epoch's end is saved anyway
    ranks: Ranks = field(default_factory=Ranks)

    def precision(self) -> AbstractContextManager[object]:
        """Autocast where it is asked for."""
        return nullcontext() if self.autocast is None else torch.autocast(self.device.type, self.autocast)


class Trainer:
    """A run in progress. ``state_dict`` holds all that an exact continuation needs, the measurements included.

    Where there are several ranks, each has a trainer, and all call its methods together.
    """

    def __init__(self, model: nn.Module, optimizer: SteppedOptimizer, data: Data, plan: Plan) -> None:
        self.model, self.optimizer, self.data, self.plan = model, optimizer, data, plan
        self.ranks = plan.ranks
        self.rows: list[EpochRow] = []
        self._own_losses: list[Tensor] = []  # of this rank, since they were last merged
        self._losses: list[Tensor] = []  # of all ranks
        self._num_looked_at = 0
        self._rank_states: list[dict[str, Tensor]] | None = None
        self._began = 0.0

    @property
    def epoch(self) -> int:
        """The epoch under way, from 0."""
        return len(self.rows)

    def run(self, save: Callable[[], None], stop_asked: Callable[[], bool], watcher: Watcher) -> None:
        """Train until the last epoch is done; ``save`` is called whenever there is something new to keep."""
        for epoch in range(self.epoch, self.plan.epochs):
            self._begin_epoch(watcher)
            start = self.optimizer.inner_step * self.data.batches_per_step
            timer = StepTimer()
            for batch in self.data.training_batches(epoch, start):
                self._learn_from(batch)
                watcher.after_step(self._own_losses[-1])
                if timer.has_timed_enough():
                    watcher.estimate(self._seconds_left(timer.seconds_per_step))
                if len(self._own_losses) % self.data.batches_per_step == 0:
                    self._look_around(save, stop_asked)
            self._refuse_divergence()
            row = self._end_epoch()
            save()
            watcher.end_epoch(row)

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors only, so that it loads without running code."""
        self._merge_losses()
        inside_epoch = bool(self._losses)
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rows": [row._asdict() for row in self.rows],
            "losses": torch.stack(self._losses).cpu() if inside_epoch else torch.empty(0),
            "seconds": self._seconds() if inside_epoch else 0.0,
            "rank_states": rank_states(self.model, self.ranks, self.plan.device) if inside_epoch else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken; one that does not fit is refused before anything is changed."""
        saved = checked_progress(state, self)
        self.optimizer.load_state_dict(state["optimizer"])
        self.model.load_state_dict(saved.model)
        self.rows, self._rank_states = saved.rows, saved.rank_states
        self._losses = list(saved.losses.to(self.plan.device, copy=True))  # whatever it shares its memory with
        self._num_looked_at = len(self._losses)
        self._began = time.perf_counter() - saved.seconds

    def _begin_epoch(self, watcher: Watcher) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.plan.learning_rate(self.epoch)
        self.optimizer.set_epoch(self.epoch)
        torch.manual_seed(self._dropout_key())
        if self._rank_states is None:
            self._began = time.perf_counter()
        else:
            restore_rank_state(self.model, self._rank_states, self.ranks, self.plan.device)
            self._rank_states = None
        self.model.train()
        switch(self.optimizer, "train")
        self.optimizer.zero_grad()
        batches, at_once = self.data.batches_per_epoch, self.data.division.steps_at_once
        done = self.optimizer.inner_step * self.data.batches_per_step
        samples_per_batch = self.data.samples_per_epoch * at_once / batches
        watcher.begin_epoch(self.epoch, done // at_once, batches // at_once, samples_per_batch)

    def _dropout_key(self) -> int:
        """Of the global generator at this place; no two ranks drop the same units."""
        step, rank = self.optimizer.inner_step, self.ranks.rank
        position = () if self.ranks.alone and step == 0 else (rank,) if step == 0 else (rank, step)
        return stream_key(self.plan.seed, "dropout", self.epoch, *position)

    def _learn_from(self, batch: Batch) -> None:
        inputs, labels, num_counted, num_samples = batch
        with self.plan.precision():
            scores = self.model(inputs)
            loss = self.plan.loss_fn(scores, labels)
        if not self._losses and not self._own_losses:
            as_classes(labels, scores)  # what could not be tested is not trained first
        if num_counted != num_samples:  # the other ranks have the rest of the mean
            loss = loss * (num_counted / num_samples)
        self._own_losses.append(loss.detach())
        if self.data.batches_per_step > 1:  # the gradient over the whole set, in parts
            loss = loss * (num_samples / self.data.num_samples)
        torch.autograd.backward(loss)
        if len(self._own_losses) % self.data.batches_per_step == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def _look_around(self, save: Callable[[], None], stop_asked: Callable[[], bool]) -> None:
        """Between two steps: notice divergence, save, stop. All ranks look, and stop, after the same step."""
        step, every, at_once = self.optimizer.inner_step, self.plan.checkpoint_every, self.data.division.steps_at_once
        must_save = every is not None and step % every < at_once
        is_last = step == self.data.batches_per_epoch // self.data.batches_per_step
        must_look = must_save or is_last or step % STEPS_BETWEEN_LOOKS < at_once
        must_ask = must_look or self.ranks.alone or step % STEPS_BETWEEN_QUESTIONS < at_once
        stop = must_ask and self.ranks.any(stop_asked())
        if must_look or stop:
            self._refuse_divergence()
        if must_save or stop:
            save()
        if stop:
            raise Interrupted(
                f"Stopped in epoch {self.epoch + 1} after {step} inner steps; all of it is saved. "
                "The same command goes on from there."
            )

    def _merge_losses(self) -> None:
        """Make the losses of all ranks known to each."""
        if self._own_losses:
            self._losses += self.data.division.merged(self.ranks.gather(torch.stack(self._own_losses)))
            self._own_losses = []

    def _refuse_divergence(self) -> None:
        self._merge_losses()
        unseen = self._losses[self._num_looked_at :]
        finite = torch.stack(unseen).isfinite().tolist() if unseen else []
        if not all(finite):
            batch = self._num_looked_at + finite.index(False)
            self._diverged(f"loss is {self._losses[batch].item()}", batch // self.data.batches_per_step)
        self._num_looked_at = len(self._losses)

    def _diverged(self, what: str, step: int) -> NoReturn:
        raise Diverged(
            f"The {what} in epoch {self.epoch + 1}, inner step {step}, block {self.optimizer.block_at(step)}, "
            f"at learning rate {self.plan.learning_rate(self.epoch):g}. "
            "The last checkpoint is from before. Try a smaller learning rate."
        )

    def _end_epoch(self) -> EpochRow:
        training_seconds = self._seconds()
        losses = torch.stack(self._losses).double()
        average_buffers(self.model, self.ranks)
        switch(self.optimizer, "eval")
        test_loss, test_accuracy = evaluate(self.model, self.data.test_batches(), self.plan)
        if not math.isfinite(test_loss):
            self._diverged(f"test loss is {test_loss}", self.optimizer.inner_step - 1)
        row = EpochRow(
            epoch=self.epoch + 1,
            learning_rate=self.plan.learning_rate(self.epoch),
            train_loss=losses.mean().item(),
            train_loss_std=losses.std(correction=0).item(),
            test_loss=test_loss,
            test_accuracy=test_accuracy,
            gradient_evaluations=(self.epoch + 1) * self.data.samples_per_epoch,
            seconds=self._seconds(),
            images_per_second=per_second(self.data.samples_per_epoch, training_seconds),
        )
        self.rows.append(row)
        self._losses, self._num_looked_at = [], 0
        return row

    def _seconds(self) -> float:
        return time.perf_counter() - self._began

    def _seconds_left(self, seconds_per_batch: float) -> float:
        """Testing an image costs a third of training on it: forward without backward."""
        num_batches = self.data.batches_per_epoch / self.data.division.steps_at_once
        done = self.optimizer.inner_step * self.data.batches_per_step / self.data.batches_per_epoch
        test_share = self.data.num_test_samples / self.data.samples_per_epoch / 3
        return (self.plan.epochs - self.epoch - done) * num_batches * seconds_per_batch * (1 + test_share)


def switch(optimizer: SteppedOptimizer, mode: Literal["train", "eval"]) -> None:
    """Let a schedule-free optimizer put the weights in place that are to be trained, or to be evaluated and kept."""
    getattr(optimizer, mode, lambda: None)()


def as_classes(labels: Tensor, scores: Tensor) -> Tensor:
    """The class of every place that has scores, which are the second dimension; of probabilities the likeliest."""
    places = (*scores.shape[:1], *scores.shape[2:])
    if scores.dim() > 1 and scores.shape[1] > 1:
        if labels.shape == places and not labels.is_floating_point():
            return labels
        if labels.shape == scores.shape and labels.is_floating_point():
            return labels.argmax(1)
    raise InvalidArgumentError(
        f"For scores of shape {tuple(scores.shape)} the labels must be whole numbers of shape {places}, or "
        f"probabilities of the scores' shape, got {labels.dtype} of shape {tuple(labels.shape)}: a run measures how "
        "often the largest score is right. For other tasks take BlockCyclic and its sampler in a loop of your own."
    )


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], plan: Plan) -> tuple[float, float]:
    """Mean loss and accuracy in percent, over the batches of all ranks; of several labels a sample has the mean."""
    model.eval()
    loss = torch.zeros((), dtype=torch.float64)
    correct, num_samples = 0.0, 0
    for images, labels in batches:
        with plan.precision():
            scores = model(images)
            loss += plan.loss_fn(scores, labels).double().cpu() * len(labels)
        is_right = scores.argmax(1) == as_classes(labels, scores)
        correct += int(is_right.sum()) * len(labels) / is_right.numel()
        num_samples += len(labels)
    totals = torch.tensor([loss.item(), correct, num_samples], dtype=torch.float64)
    total_loss, all_correct, all_samples = plan.ranks.sum_(totals).tolist()
    return total_loss / all_samples, 100 * all_correct / all_samples
