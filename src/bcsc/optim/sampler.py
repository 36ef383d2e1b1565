"""Which samples each inner step sees: a pure function of the seed, the epoch and the step."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from bcsc.choices import SAMPLES, Samples
from bcsc.errors import InvalidArgumentError, StateMismatchError, check_at_least, check_choice, check_same_setup
from bcsc.optim.position import Position
from bcsc.seeding import stream, stream_key


def draw_shuffles(num_samples: int, num_shuffles: int, seed: int, epoch: int) -> Tensor:
    """Independent orders of all samples, one per row."""
    shuffles = torch.empty(num_shuffles, num_samples, dtype=torch.int64)
    for j in range(num_shuffles):
        torch.randperm(num_samples, generator=stream(seed, "shuffle", epoch, j), out=shuffles[j])
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
        one_pass: an epoch is ceil(n / B) batches instead of M times as many; for ``samples="random"``.
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
    ) -> None:
        super().__init__()
        self.num_samples = check_at_least("num_samples (give len(dataset))", num_samples, 1)
        self.batch_size = check_at_least("batch_size", batch_size, 1)
        self.num_blocks = check_at_least("num_blocks", num_blocks, 1)
        self.seed = check_at_least("seed", seed, 0)
        check_choice("samples", samples, SAMPLES)
        if one_pass and samples != "random":
            raise InvalidArgumentError(f'one_pass=True goes with samples="random" only, got samples={samples!r}.')
        self.samples = samples
        self.one_pass = one_pass
        self._start = Position()
        self._num_given = 0

    @property
    def batches_per_pass(self) -> int:
        """T, the mini-batches in one pass over the data."""
        return -(-self.num_samples // self.batch_size)

    @property
    def samples_per_epoch(self) -> int:
        """Samples in all batches of an epoch, each counted as often as it comes."""
        if self.samples == "random":
            return len(self) * min(self.batch_size, self.num_samples)
        return self.num_blocks * self.num_samples

    @property
    def epoch(self) -> int:
        """The epoch whose batches come next."""
        return self._start.epoch

    def __len__(self) -> int:
        return self.batches_per_pass * (1 if self.one_pass else self.num_blocks)

    def set_epoch(self, epoch: int) -> None:
        """Begin ``epoch``; right after ``load_state_dict`` its own epoch goes on where it was saved."""
        self._start.set_epoch(epoch)
        self._num_given = self._start.step

    def __iter__(self) -> Iterator[list[int]]:
        start = self._start.step
        for step, batch in enumerate(self.index_batches(self.epoch, start), start=start):
            self._num_given = step + 1
            yield batch.tolist()
        self._start.begin_again()

    def index_batches(self, epoch: int, start: int = 0) -> Iterator[Tensor]:
        """The batches of ``epoch`` from number ``start`` on, as index tensors for loops that gather from tensors."""
        shuffles = self._draw_shuffles(epoch)
        return (self._batch(shuffles, epoch, step) for step in range(start, len(self)))

    def batch_size_at(self, step: int) -> int:
        """How many samples the batch at ``step`` has: the last ones of a pass may be short."""
        t = 0 if self.samples == "random" else self._outer_and_inner(step)[0]
        return min(self.batch_size, self.num_samples - t * self.batch_size)

    def _draw_shuffles(self, epoch: int) -> Tensor:
        num_shuffles = {
            "shuffle-per-block": self.num_blocks,
            "one-shuffle": 1,
            "random": 0,
            "everything": self.num_blocks,
        }
        return draw_shuffles(self.num_samples, num_shuffles[self.samples], self.seed, epoch)

    def _batch(self, shuffles: Tensor, epoch: int, step: int) -> Tensor:
        if self.samples == "random":
            generator = np.random.default_rng(stream_key(self.seed, "random samples", epoch, step))
            size = min(self.batch_size, self.num_samples)
            return torch.from_numpy(generator.choice(self.num_samples, size, replace=False))
        t, j = self._outer_and_inner(step)
        shuffle = shuffles[j % len(shuffles)]
        return shuffle[t * self.batch_size : (t + 1) * self.batch_size]

    def _outer_and_inner(self, step: int) -> tuple[int, int]:
        if self.samples == "everything":
            return step % self.batches_per_pass, step // self.batches_per_pass
        return divmod(step, self.num_blocks)

    def _setup(self) -> dict[str, Any]:
        names = ("num_samples", "batch_size", "num_blocks", "seed", "samples", "one_pass")
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """The epoch, the batches already given in it, and what the sampler was built with.

        A ``DataLoader`` with workers asks for batches ahead of the training: its sampler has then given more than
        was trained on. Take the step from the optimizer: ``{**sampler.state_dict(), "step": optimizer.inner_step}``.
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
