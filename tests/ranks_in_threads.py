"""Several ranks as threads of this process: collectives without a network, for laws that need no more."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from bcsc.distributed.collectives import Ranks


class Meeting:
    """Where the ranks put down what they have, and wait for each other."""

    def __init__(self, size: int) -> None:
        self.held: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60)

    def exchanged(self, rank: int, mine: Any) -> list[Any]:
        """What every rank has put down."""
        self.held[rank] = mine
        self.barrier.wait()
        everything = list(self.held)
        self.barrier.wait()
        return everything


class RankThread(Ranks):
    """One of the ranks."""

    def __init__(self, rank: int, size: int, meeting: Meeting) -> None:
        super().__init__(rank, size)
        self.meeting = meeting

    def sum_(self, tensor: Tensor) -> Tensor:
        return tensor.copy_(sum(self.meeting.exchanged(self.rank, tensor.clone())))

    def exchange(self, outgoing: Sequence[Tensor], sizes: Sequence[int], shape: Sequence[int] = (-1,)) -> list[Tensor]:
        received = [sent[self.rank] for sent in self.meeting.exchanged(self.rank, [x.clone() for x in outgoing])]
        assert [x.numel() for x in received] == list(sizes)
        return [x.view(shape) for x in received]

    def from_first(self, make: Callable[[], Any]) -> Any:
        return self.meeting.exchanged(self.rank, make() if self.rank == 0 else None)[0]


def in_threads(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``function(ranks, *arguments)`` returns on each of ``size`` ranks."""
    meeting = Meeting(size)

    def work(rank: int) -> Any:
        try:
            return function(RankThread(rank, size, meeting), *arguments)
        except BaseException:
            meeting.barrier.abort()  # or the others would wait for this one
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(work, range(size)))
