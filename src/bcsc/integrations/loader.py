"""A loader that goes on inside an epoch where it was saved."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from bcsc.distributed.rank_sampler import RankSampler
from bcsc.errors import InvalidArgumentError
from bcsc.optim.sampler import BlockCyclicSampler
from bcsc.seeding import stream_key


class BlockCyclicLoader:
    """The batches of a data set, with a ``state_dict`` that says how many of them the training has received.

    It counts at the training's end, so that what workers have fetched ahead is fetched again after a resumption. All of
    an epoch having been given, the next one begins by itself unless ``set_epoch`` says which. The seeds of workers
    follow from the sampler's seed, the epoch and the rank: the global generator, which dropout draws from, is left
    alone. Everything else is as in the ``DataLoader`` inside, whose attributes it has. It is none itself: trainers that
    rebuild a ``DataLoader``, or deal out its batches to several processes, leave it alone.

    Args:
        dataset: any data set of torch with a length.
        batches: which samples come when; under several processes each rank's ``RankSampler``.
        options: what else a ``DataLoader`` takes, such as ``num_workers``.

    Examples:
        >>> from torch.utils.data import TensorDataset
        >>> dataset = TensorDataset(torch.arange(12))
        >>> loader = BlockCyclicLoader(dataset, BlockCyclicSampler(12, batch_size=4, num_blocks=2))
        >>> received = [batch for _, batch in zip(range(2), loader)]
        >>> resumed = BlockCyclicLoader(dataset, BlockCyclicSampler(12, batch_size=4, num_blocks=2))
        >>> resumed.load_state_dict(loader.state_dict())
        >>> len(loader), len(list(resumed))
        (6, 4)
    """

    def __init__(self, dataset: Any, batches: BlockCyclicSampler | RankSampler, **options: Any) -> None:
        if not isinstance(batches, BlockCyclicSampler | RankSampler):
            raise InvalidArgumentError(
                f"batches must be a BlockCyclicSampler or a RankSampler, got a {type(batches).__name__}. "
                "Other samplers belong into a DataLoader."
            )
        if not hasattr(dataset, "__len__"):
            raise InvalidArgumentError(
                f"The data set must have a length, got a {type(dataset).__name__} without: a sampler draws any sample "
                "by its number."
            )
        self._whole, self._rank = (batches.whole, batches.rank) if isinstance(batches, RankSampler) else (batches, 0)
        if self._whole.num_samples > len(dataset):
            raise InvalidArgumentError(
                f"The sampler draws from {self._whole.num_samples} samples, the data set has {len(dataset)}. "
                "Build the sampler with num_samples=len(dataset)."
            )
        self._generator = torch.Generator()  # unless another is among the options
        self.loader: DataLoader[Any] = DataLoader(
            dataset, batch_sampler=batches, **{"generator": self._generator, **options}
        )

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self._whole.turn_over()
        self._generator.manual_seed(stream_key(self._whole.seed, "workers", self._whole.epoch, self._rank))
        for num_batches, batch in enumerate(self.loader, start=self._whole.start + 1):
            self._whole.note_received(num_batches)
            yield batch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "loader":  # not there yet while it is being copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def set_epoch(self, epoch: int) -> None:
        """Begin ``epoch``; right after ``load_state_dict`` its own epoch goes on where it was saved."""
        self._whole.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The sampler's: the epoch, and how many of its batches were received."""
        return self._whole.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after the last batch that was received when ``state_dict`` was taken."""
        self._whole.load_state_dict(state_dict)
