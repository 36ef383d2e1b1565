"""The trainer's view of data: from memory, or from any torch ``Dataset``."""

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bcsc.data.feeding import Feeder, Step
from bcsc.distributed.division import WHOLE, Division
from bcsc.errors import InvalidArgumentError
from bcsc.optim.sampler import BlockCyclicSampler
from bcsc.training.trainer import Batch

TEST_BATCH_SIZE = 500


class SampledData:
    """What both kinds of data share: the sizes, which come from the sampler, and what of it all is this rank's."""

    def __init__(
        self, sampler: BlockCyclicSampler, batches_per_step: int, num_test_samples: int, division: Division
    ) -> None:
        self.sampler, self.division = sampler, division
        self.num_samples = sampler.num_samples
        self.num_test_samples = num_test_samples
        self.batches_per_epoch = len(sampler)
        self.batches_per_step = batches_per_step
        self.samples_per_epoch = sampler.samples_per_epoch

    def _index_batches(self, epoch: int, start: int) -> Iterator[tuple[int, Tensor]]:
        """The number and the samples of every whole mini-batch that this rank has a part in."""
        numbers = self.division.batches(start, self.batches_per_epoch)
        batches = islice(self.sampler.index_batches(epoch, numbers.start), 0, None, numbers.step)
        return zip(numbers, batches, strict=True)

    def _as_batches(self, start: int, parts: Iterator[tuple[Tensor, Tensor]]) -> Iterator[Batch]:
        """This rank's parts of the mini-batches from number ``start`` on, with the sizes of the whole ones."""
        for step, (inputs, labels) in zip(self.division.batches(start, self.batches_per_epoch), parts, strict=True):
            num_samples = self.sampler.batch_size_at(step)
            yield Batch(inputs, labels, self.division.num_counted(num_samples), num_samples)


class FeederData(SampledData):
    """Batches gathered from feeders in memory.

    With ``overwrite`` one takes the place of another: for networks that keep none, and that leave it as it is.
    """

    def __init__(
        self,
        train: Feeder,
        test: Feeder,
        sampler: BlockCyclicSampler,
        batches_per_step: int,
        division: Division = WHOLE,
        *,
        overwrite: bool = False,
    ) -> None:
        super().__init__(sampler, batches_per_step, len(test), division)
        self._train, self._test, self._overwrite = train, test, overwrite

    def training_batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of ``epoch`` from number ``start`` on."""
        index_batches = self._index_batches(epoch, start)
        steps = (Step(step, indices, self.division.part(len(indices))) for step, indices in index_batches)
        return self._as_batches(start, self._train.batches(epoch, steps, overwrite=self._overwrite))

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches of the test set."""
        batches = torch.split(torch.arange(len(self._test)), TEST_BATCH_SIZE)
        return (self._test.batch(indices) for indices in batches[self.division.rank :: self.division.size])


class LoaderData(SampledData):
    """Batches of any ``Dataset`` of (input, label), by torch's own ``DataLoader``."""

    def __init__(
        self,
        train: Dataset[Any],
        test: Dataset[Any],
        sampler: BlockCyclicSampler,
        batches_per_step: int,
        *,
        device: torch.device,
        division: Division = WHOLE,
    ) -> None:
        super().__init__(sampler, batches_per_step, length_of(test), division)
        self._train, self._test, self._device = train, test, device

    def training_batches(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of ``epoch`` from number ``start`` on; a data set that has ``set_epoch`` is told the epoch."""
        if hasattr(self._train, "set_epoch"):
            self._train.set_epoch(epoch)
        parts = (indices[self.division.part(len(indices))].tolist() for _, indices in self._index_batches(epoch, start))
        return self._as_batches(start, self._on_device(self._train, parts))

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's batches of the test set."""
        batches = torch.split(torch.arange(self.num_test_samples), TEST_BATCH_SIZE)
        mine = [indices.tolist() for indices in batches[self.division.rank :: self.division.size]]
        return self._on_device(self._test, mine)

    def _on_device(self, dataset: Dataset[Any], batches: Iterable[list[int]]) -> Iterator[tuple[Tensor, Tensor]]:
        # A generator of its own: a loader draws a number when it starts, and a continued epoch starts it once more.
        for batch in DataLoader(dataset, batch_sampler=batches, generator=torch.Generator()):
            if not (isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(x, Tensor) for x in batch)):
                raise InvalidArgumentError(
                    "The data set must give pairs of an input and a label, each a tensor or a number, "
                    f"got a {type(batch).__name__}. Wrap it in a Dataset that does."
                )
            inputs, labels = batch
            yield inputs.to(self._device), labels.to(self._device)


def length_of(dataset: Dataset[Any]) -> int:
    """The number of samples; a stream without one cannot be shuffled."""
    if not hasattr(dataset, "__len__") or len(cast(Sized, dataset)) == 0:
        raise InvalidArgumentError(
            f"The data set must have a length of at least 1 and be indexable, got {type(dataset).__name__}."
        )
    return len(cast(Sized, dataset))
