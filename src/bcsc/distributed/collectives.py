"""What the ranks tell each other; the identity where there is one rank only."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from bcsc.errors import BcscError

T = TypeVar("T")


class RankLostError(BcscError, RuntimeError):
    """Another process of the run has died, or has not answered for a minute."""

    exit_code = 4


class Ranks:
    """The processes that train together, seen from one of them, and the bytes it has sent to the others.

    Bytes are those of the usual algorithms: of n bytes a ring sends 2 (W - 1) / W n from every rank to sum them, an
    exchange sends what is for others. Objects, which are sent around checkpoints only, are not counted.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self.bytes_sent = 0

    @property
    def alone(self) -> bool:
        """Whether there is no other rank."""
        return self.size == 1

    def sum_(self, tensor: Tensor) -> Tensor:
        """The sum over the ranks, in place; the same bits on every rank."""
        if not self.alone:
            with self._naming_lost_ranks():
                dist.all_reduce(tensor)
            self.bytes_sent += 2 * (self.size - 1) * tensor.nbytes // self.size
        return tensor

    def any(self, flag: bool) -> bool:
        """Whether it is so on some rank."""
        return flag if self.alone else bool(self.sum_(torch.tensor(int(flag))))

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, which have the same shape, in order."""
        return self.exchange([tensor.flatten()] * self.size, [tensor.numel()] * self.size, tensor.shape)

    def exchange(self, outgoing: Sequence[Tensor], sizes: Sequence[int], shape: Sequence[int] = (-1,)) -> list[Tensor]:
        """Send one flat tensor to every rank, and receive from each one of the size that is known beforehand."""
        if self.alone:
            return [outgoing[0].view(shape)]
        received = outgoing[0].new_empty(sum(sizes))
        lengths = [len(tensor) for tensor in outgoing]
        with self._naming_lost_ranks():
            dist.all_to_all_single(received, torch.cat(list(outgoing)), list(sizes), lengths)
        self.bytes_sent += sum(tensor.nbytes for rank, tensor in enumerate(outgoing) if rank != self.rank)
        return [part.view(shape) for part in torch.split(received, list(sizes))]

    def from_first(self, make: Callable[[], T]) -> T:
        """What ``make`` returns on rank 0, on every rank; an error of ours there is raised on every rank."""
        if self.alone:
            return make()
        answer: list[Any] = [None, None]
        if self.rank == 0:
            try:
                answer[0] = make()
            except BcscError as error:
                answer[1] = error
        with self._naming_lost_ranks():
            dist.broadcast_object_list(answer, src=0)
        value, failure = answer
        if failure is not None:
            raise failure
        first: T = value
        return first

    @contextmanager
    def _naming_lost_ranks(self) -> Iterator[None]:
        """Turn torch's error, where another rank is gone, into one that says so and what to do."""
        try:
            yield
        except RuntimeError as error:
            raise RankLostError(
                f"Rank {self.rank} of {self.size} has lost touch with another rank, which died or hangs "
                f"({str(error).splitlines()[0][:120]}). "
                "The last checkpoint is good. The same command goes on from there."
            ) from error
