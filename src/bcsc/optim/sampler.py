"""Which samples each inner step sees: a pure function of the seed, the epoch and the step."""

import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Sampler

from bcsc.choices import SAMPLES, Samples
from bcsc.errors import (
    DriftWarning,
    InvalidArgumentError,
    StateMismatchError,
    check_at_least,
    check_choice,
    check_same_setup,
)
from bcsc.optim.position import Position
from bcsc.seeding import stream, stream_key

# The sampler that gave the batch for the next step in this thread, if any did; only ``bcsc.optim.drift`` looks here.
LAST_TO_GIVE: ContextVar["weakref.ref[BlockCyclicSampler] | None"] = ContextVar("LAST_TO_GIVE", default=None)


def draw_shuffles(num_samples: int, num_shuffles: int, seed: int, epoch: int) -> Tensor:
    """Independent orders of all samples, one per row."""
    shuffles = torch.empty(num_shuffles, num_samples, dtype=torch.int64, device="cpu")
    for j in range(num_shuffles):
        torch.randperm(num_samples, generator=stream(seed, "shuffle", epoch, j), out=shuffles[j], device="cpu")
    return shuffles


class BlockCyclicSampler(Sampler[list[int]]):
    """The mini-batches of one epoch, in the order of the inner steps; a ``batch_sampler`` for any ``DataLoader``.

    Paper -> code:  n -> num_samples,  B -> batch_size,  M -> num_blocks,  chi_j -> row j of the shuffles,
    beta^(t, j) -> the batch at inner step t * M + j.

    Args:
        num_samples: length of the data set.
        batch_size: samples per mini-batch; the last batch of a shuffle may be shorter and is kept.
        num_blocks: M, the same as the optimizer's.
        seed: fixes every shuffle together with the epoch.
        samples: which samples the inner step (t, j) sees.

            - ``"shuffle-per-block"``: batch t of shuffle j (BCSC).
            - ``"one-shuffle"``: batch t of one shuffle, whatever j (RBC; SGD when ``num_blocks=1``).
            - ``"random"``: ``batch_size`` samples drawn anew, without replacement inside the batch (SBC).
            - ``"everything"``: the batches of shuffle j one after the other; accumulate their gradients into
              one inner step (BCD).
        one_pass: an epoch is ceil(n / B) batches instead of M times as many, one for each step: block j sees every
            M-th batch. For ``samples="one-shuffle"`` and ``"random"``.
        batches_per_step: how many batches the training accumulates into one inner step. They are given one after the
            other, and are together what a sampler with ``batches_per_step`` times the ``batch_size`` gives at once: B
            is the size of them all. The last, short mini-batch of a pass is cut into as many.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        num_blocks: int,
        *,
        seed: int = 0,
        samples: Samples = "shuffle-per-block",
        one_pass: bool = False,
        batches_per_step: int = 1,
    ) -> None:
        super().__init__()
        self.num_samples = check_at_least("num_samples (give len(dataset))", num_samples, 1)
        self.batch_size = check_at_least("batch_size", batch_size, 1)
        self.num_blocks = check_at_least("num_blocks", num_blocks, 1)
        self.seed = check_at_least("seed", seed, 0)
        check_choice("samples", samples, SAMPLES)
        if one_pass and samples not in ("one-shuffle", "random"):
            raise InvalidArgumentError(
                f'one_pass=True goes with samples="one-shuffle" or "random" only, got samples={samples!r}.'
            )
        self.samples = samples
        self.one_pass = one_pass
        self._num_parts = check_at_least("batches_per_step", batches_per_step, 1)
        self._check_parts()
        self._start = Position()
        self._begun_at = self._num_given = 0
        self._given_before = (0, 0)
        self._has_warned = False

    @property
    def batches_per_pass(self) -> int:
        """The batches in one pass over the data: T, unless several make an inner step."""
        return -(-self.num_samples // self._step_size) * self._num_parts

    @property
    def batches_per_step(self) -> int:
        """How many batches' gradients are accumulated into one inner step."""
        return self.batches_per_pass if self.samples == "everything" else self._num_parts

    @property
    def steps_per_epoch(self) -> int:
        """The inner steps of an epoch."""
        return len(self) // self.batches_per_step

    @property
    def samples_per_epoch(self) -> int:
        """Samples in all batches of an epoch, each counted as often as it comes."""
        if self.samples == "random":
            return self.steps_per_epoch * min(self._step_size, self.num_samples)
        return self._num_passes * self.num_samples

    @property
    def epoch(self) -> int:
        """The epoch whose batches come next."""
        return self._start.epoch

    @property
    def start(self) -> int:
        """The number of the first batch that iterating gives: not 0 after loading a state from inside an epoch."""
        return self._start.step

    @property
    def begun_at(self) -> int:
        """The number of the first batch that was given when batches were last asked for."""
        return self._begun_at

    @property
    def sampler(self) -> "BlockCyclicSampler":
        """Itself: Lightning sets the epoch of a batch sampler's ``sampler``."""
        return self

    def __len__(self) -> int:
        return self.batches_per_pass * self._num_passes

    def set_epoch(self, epoch: int) -> None:
        """Begin ``epoch``; right after ``load_state_dict`` its own epoch goes on where it was saved."""
        self._given_before = (self.epoch, self._num_given)
        self._start.set_epoch(epoch)
        self._num_given = self._start.step

    def __iter__(self) -> Iterator[list[int]]:
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._warn_of_undivided_batches(dist.get_world_size())
        return self.give()

    def give(self) -> Iterator[list[int]]:
        """The batches of this epoch, counted as they are given."""
        self._begun_at = self.start
        for number, batch in enumerate(self.index_batches(self.epoch, self.start), start=self.start):
            self._start.leave()
            self._num_given = number + 1
            LAST_TO_GIVE.set(weakref.ref(self))
            yield batch.tolist()
        self._start.begin_again()

    def given_in(self, epoch: int) -> int:
        """How many batches of ``epoch``, this one or the one before, were given."""
        return self._num_given if epoch == self.epoch else dict([self._given_before]).get(epoch, 0)

    def note_received(self, num_batches: int) -> None:
        """Say how many batches of this epoch the training has received, where they are asked for ahead of it."""
        self._num_given = num_batches

    def turn_over(self) -> None:
        """Go to the next epoch if all of this one was given, and nobody has said which comes next."""
        if self._num_given == len(self) and not self._start.is_told:
            self.set_epoch(self.epoch + 1)

    def index_batches(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """The batches of ``epoch`` from number ``start`` on, as index tensors for loops that gather from tensors."""
        shuffles = self._draw_shuffles(epoch)
        return (self._batch(shuffles, epoch, step) for step in range(start, len(self)))

    def batch_size_at(self, number: int) -> int:
        """How many samples batch ``number`` of an epoch has: the last ones of a pass may be short."""
        step, part = divmod(number, self._num_parts)
        t = 0 if self.samples == "random" else self._outer_and_inner(step)[0]
        whole = min(self._step_size, self.num_samples - t * self._step_size)
        return -(-(whole - part) // self._num_parts)

    @property
    def _num_passes(self) -> int:
        """How often an epoch goes through the data."""
        return 1 if self.one_pass else self.num_blocks

    @property
    def _step_size(self) -> int:
        """The samples of the mini-batch that is given in parts."""
        return self.batch_size * self._num_parts

    def _warn_of_undivided_batches(self, num_ranks: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"Each of {num_ranks} processes takes whole mini-batches from this BlockCyclicSampler. Give each its "
                "part: RankSampler(batches, rank, num_ranks), in a BlockCyclicLoader, which no trainer divides once "
                "more. Where all are to see the same samples, as in tensor parallelism: RankSampler(batches, 0, 1).",
                DriftWarning,
                stacklevel=3,
            )

    def _check_parts(self) -> None:
        """Refuse parts that would have to stay empty."""
        if self._num_parts > 1 and self.samples == "everything":
            raise InvalidArgumentError(
                'samples="everything" accumulates a whole pass into each inner step: leave batches_per_step out, '
                f"got {self._num_parts}."
            )
        last = self.num_samples % self._step_size or self._step_size
        fewest = min(self._step_size, self.num_samples) if self.samples == "random" else last
        if fewest < self._num_parts:
            raise InvalidArgumentError(
                f"The last inner step of a pass has {fewest} of the {self.num_samples} samples, too few for "
                f"batches_per_step={self._num_parts}. Take another batch_size, or leave some samples out."
            )

    def _draw_shuffles(self, epoch: int) -> Tensor:
        num_shuffles = {
            "shuffle-per-block": self.num_blocks,
            "one-shuffle": 1,
            "random": 0,
            "everything": self.num_blocks,
        }
        return draw_shuffles(self.num_samples, num_shuffles[self.samples], self.seed, epoch)

    def _batch(self, shuffles: Tensor, epoch: int, number: int) -> Tensor:
        step, part = divmod(number, self._num_parts)
        whole = self._mini_batch(shuffles, epoch, step)
        return whole if self._num_parts == 1 else whole.tensor_split(self._num_parts)[part]

    def _mini_batch(self, shuffles: Tensor, epoch: int, step: int) -> Tensor:
        if self.samples == "random":
            generator = np.random.default_rng(stream_key(self.seed, "random samples", epoch, step))
            size = min(self._step_size, self.num_samples)
            return torch.from_numpy(generator.choice(self.num_samples, size, replace=False))
        t, j = self._outer_and_inner(step)
        shuffle = shuffles[j % len(shuffles)]
        return shuffle[t * self._step_size : (t + 1) * self._step_size]

    def _outer_and_inner(self, step: int) -> tuple[int, int]:
        if self.samples == "everything":
            return step % self.batches_per_pass, step // self.batches_per_pass
        return divmod(step, self._num_passes)

    def _setup(self) -> dict[str, Any]:
        names = ("num_samples", "batch_size", "num_blocks", "seed", "samples", "one_pass", "batches_per_step")
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the batches already given in it, and what the sampler was built with.

        A ``DataLoader`` with workers asks for batches ahead of the training: its sampler has then given more than
        was trained on. ``BlockCyclicLoader`` counts what was.
        """
        return {"epoch": self.epoch, "step": self._num_given, **self._setup()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken; a sampler built otherwise is refused."""
        saved = state_dict if isinstance(state_dict, Mapping) else {}
        check_same_setup("sampler", saved=saved, current=self._setup(), others=("epoch", "step"))
        if check_at_least("step", saved["step"], 0) > len(self):
            raise StateMismatchError(
                f"The saved step is beyond the {len(self)} batches of an epoch. Load what state_dict() returned."
            )
        self._start.restore(saved["epoch"], saved["step"])
        self._num_given = self._start.step
