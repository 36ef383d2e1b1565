"""Notice when the optimizer and the sampler drift apart, so that blocks are moved by the samples of other blocks.

The two do not know each other. But the sampler that gave a batch since the last step in this thread is the one that the
step is fed by; where none did, nothing is known and nothing is said.
"""

import warnings
import weakref
from typing import Protocol

import torch

from bcsc.choices import Order
from bcsc.errors import DriftWarning
from bcsc.optim.position import Position
from bcsc.optim.sampler import LAST_TO_GIVE, BlockCyclicSampler

FEWER_STEPS = (
    "If the gradients of several batches make a step, tell the sampler: batches_per_step=. "
    "If a trainer deals out whole batches to several processes, give each a RankSampler, in a BlockCyclicLoader. "
    "If a GradScaler has skipped steps, call set_epoch on the optimizer before each epoch: it then goes on with the "
    "sampler."
)


class Follower(Protocol):
    """What an optimizer shows of itself."""

    num_blocks: int
    order: Order
    steps_per_epoch: int | None


class DriftWatch:
    """Compares an optimizer with the sampler that feeds it, and warns once."""

    def __init__(self) -> None:
        self._sampler: weakref.ref[BlockCyclicSampler] | None = None  # of this epoch
        self._has_warned = False

    def before_step(self, optimizer: Follower, position: Position) -> None:
        """Compare the two at the start of a step, unless it is compiled: then nothing of it may depend on others."""
        if torch.compiler.is_compiling():
            return
        given, _ = LAST_TO_GIVE.get(), LAST_TO_GIVE.set(None)
        sampler = None if given is None else given()
        if sampler is not None and sampler.num_blocks != optimizer.num_blocks:
            self._warn(other_blocks(optimizer, sampler))
        elif sampler is not None:
            if position.is_begun_here:  # a sampler that has given all already was listed, or is far ahead
                self._sampler = None if sampler.given_in(position.epoch) == len(sampler) else given
            self._warn(drift_at_step(optimizer.steps_per_epoch, position, sampler))

    def before_epoch(self, position: Position) -> None:
        """Compare the two at the end of an epoch."""
        sampler = None if self._sampler is None else self._sampler()
        if sampler is not None and not position.is_begun_here:
            self._warn(drift_over_epoch(position, sampler))

    def _warn(self, message: str | None) -> None:
        if message is not None and not self._has_warned:
            self._has_warned = True
            warnings.warn(f"{message} (docs/integrations.md)", DriftWarning, stacklevel=4)

    def __getstate__(self) -> dict[str, object]:
        return {"_sampler": None, "_has_warned": self._has_warned}


def other_blocks(optimizer: Follower, sampler: BlockCyclicSampler) -> str | None:
    """What is wrong, if anything is, where the two have different numbers of blocks: only shuffles belong to blocks."""
    if sampler.samples != "shuffle-per-block" or optimizer.order != "cyclic":
        return None
    return (
        f"The optimizer has {optimizer.num_blocks} blocks, the sampler shuffles for {sampler.num_blocks}, so that a "
        "block does not see every sample once an epoch. Give both the same num_blocks, or the sampler "
        "samples='one-shuffle'."
    )


def drift_at_step(steps_per_epoch: int | None, position: Position, sampler: BlockCyclicSampler) -> str | None:
    """What is wrong, if anything is, when a step is about to be made from ``position``."""
    here = f"The optimizer is at step {position.step} of epoch {position.epoch}"
    turn = f"Call set_epoch on it before each epoch, or give it steps_per_epoch={sampler.steps_per_epoch}."
    if position.epoch > sampler.epoch:
        return (
            f"{here}, the sampler still gives batches of epoch {sampler.epoch}. Call set_epoch on it before each "
            "epoch, or let a BlockCyclicLoader load its batches, which turns over by itself."
        )
    if position.epoch < sampler.epoch:
        return f"{here}, the sampler gives batches of epoch {sampler.epoch}. " + (
            turn if steps_per_epoch is None else FEWER_STEPS
        )
    if position.step >= sampler.steps_per_epoch:
        return f"{here}, which has {sampler.steps_per_epoch}: the same blocks again. {turn}"
    first = position.step * sampler.batches_per_step
    if position.is_begun_here and not sampler.begun_at <= first < sampler.given_in(position.epoch):
        return (
            f"{here}, the sampler has begun it at batch {sampler.begun_at}. Load the state of both, or of neither; "
            "with a BlockCyclicLoader it is the loader's. If both were loaded, a GradScaler had skipped steps before: "
            "call set_epoch on the optimizer before each epoch, and it goes on with the sampler."
        )
    if first >= sampler.given_in(position.epoch):
        return (
            f"{here}, the sampler has given {sampler.given_in(position.epoch)} batches: there were more steps than "
            "batches for them. Make one step for each batch; for other steps take another optimizer."
        )
    return None


def drift_over_epoch(position: Position, sampler: BlockCyclicSampler) -> str | None:
    """What was wrong, if anything was, with the epoch that is over at ``position``.

    Fewer steps than batches may also be skipped by a ``GradScaler``; half as many are not.
    """
    num_steps = sampler.given_in(position.epoch) / sampler.batches_per_step
    if num_steps < sampler.steps_per_epoch or 2 * position.step > num_steps:
        return None
    return (
        f"In epoch {position.epoch} the optimizer has made {position.step} steps, the sampler has given the batches of "
        f"{sampler.steps_per_epoch}. {FEWER_STEPS}"
    )
