"""For loops of one's own: each rank's part of the mini-batches, as a ``batch_sampler``."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import Sampler

from bcsc.distributed.division import Division
from bcsc.errors import check_at_least
from bcsc.optim.sampler import BlockCyclicSampler


class RankSampler(Sampler[list[int]]):
    """This rank's part of every mini-batch of a ``BlockCyclicSampler``; all ranks' parts make up the whole.

    A rank for which a short mini-batch has no sample gets its first one, as ``DataLoader`` and
    ``DistributedDataParallel`` need some; its ``loss_weight`` is zero.

    Args:
        whole: built alike on every rank; its ``batch_size`` is that of all ranks together.
        rank, num_ranks: for instance ``dist.get_rank()`` and ``dist.get_world_size()``.
    """

    def __init__(self, whole: BlockCyclicSampler, rank: int, num_ranks: int) -> None:
        super().__init__()
        check_at_least("rank", rank, 0)
        check_at_least("num_ranks", num_ranks, rank + 1)
        self.whole, self._division = whole, Division(rank, num_ranks)

    @property
    def rank(self) -> int:
        """Whose part it gives."""
        return self._division.rank

    @property
    def sampler(self) -> BlockCyclicSampler:
        """The whole sampler, for trainers that set the epoch there."""
        return self.whole

    def __len__(self) -> int:
        return len(self.whole)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch[self._division.part(len(batch))] for batch in self.whole.give())

    def loss_weight(self, number: int) -> float:
        """By what to multiply this rank's mean loss of batch ``number`` of the epoch.

        ``DistributedDataParallel`` averages over the ranks, also where a mini-batch does not split evenly; weighted so,
        the average is the gradient of the whole mini-batch's mean loss.
        """
        num_samples = self.whole.batch_size_at(number)
        return self._division.num_counted(num_samples) * self._division.size / num_samples

    def set_epoch(self, epoch: int) -> None:
        """As the whole sampler's."""
        self.whole.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The whole sampler's: a run goes on with any number of ranks."""
        return self.whole.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As the whole sampler's."""
        self.whole.load_state_dict(state_dict)
