"""The trainer's view of data: from memory, or from any torch ``Dataset``."""

from collections.abc import Iterator, Sized
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bcsc.data.feeding import Feeder
from bcsc.data.shuffles import BlockCyclicSampler
from bcsc.errors import InvalidArgumentError

TEST_BATCH_SIZE = 500


class SampledData:
    """What both kinds of data share: the sizes, which come from the sampler."""

    def __init__(self, sampler: BlockCyclicSampler, batches_per_step: int, num_test_samples: int) -> None:
        self.sampler = sampler
        self.num_samples = sampler.num_samples
        self.num_test_samples = num_test_samples
        self.batches_per_epoch = len(sampler)
        self.batches_per_step = batches_per_step
        self.samples_per_epoch = sampler.samples_per_epoch


class FeederData(SampledData):
    """Batches gathered from feeders in memory."""

    def __init__(self, train: Feeder, test: Feeder, sampler: BlockCyclicSampler, batches_per_step: int) -> None:
        super().__init__(sampler, batches_per_step, len(test))
        self._train, self._test = train, test

    def training_batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of ``epoch`` from number ``start`` on."""
        for step, indices in enumerate(self.sampler.index_batches(epoch, start), start=start):
            yield self._train.batch(indices, epoch, step)

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The test set in order."""
        return (self._test.batch(indices) for indices in torch.split(torch.arange(len(self._test)), TEST_BATCH_SIZE))


class LoaderData(SampledData):
    """Batches of any ``Dataset`` of (input, label), by torch's own ``DataLoader``."""

    def __init__(
        self,
        train: Dataset[Any],
        test: Dataset[Any],
        sampler: BlockCyclicSampler,
        batches_per_step: int,
        device: torch.device,
    ) -> None:
        super().__init__(sampler, batches_per_step, length_of(test))
        self._train, self._test, self._device = train, test, device

    def training_batches(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of ``epoch`` from number ``start`` on; a data set that has ``set_epoch`` is told the epoch."""
        if hasattr(self._train, "set_epoch"):
            self._train.set_epoch(epoch)
        batches = (indices.tolist() for indices in self.sampler.index_batches(epoch, start))
        return self._on_device(DataLoader(self._train, batch_sampler=batches))

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The test set in order."""
        return self._on_device(DataLoader(self._test, batch_size=TEST_BATCH_SIZE))

    def _on_device(self, loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
        return ((inputs.to(self._device), labels.to(self._device)) for inputs, labels in loader)


def length_of(dataset: Dataset[Any]) -> int:
    """The number of samples; a stream without one cannot be shuffled."""
    if not hasattr(dataset, "__len__") or len(cast(Sized, dataset)) == 0:
        raise InvalidArgumentError(
            f"The data set must have a length of at least 1 and be indexable, got {type(dataset).__name__}."
        )
    return len(cast(Sized, dataset))
