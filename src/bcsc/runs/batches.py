"""The trainer's view of data: from memory, or from any torch ``Dataset``, and what tells the latter apart."""

import re
from collections.abc import Iterable, Iterator, Sized
from functools import partial
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bcsc.data.feeding import Feeder, Step
from bcsc.distributed.division import WHOLE, Division
from bcsc.errors import InvalidArgumentError
from bcsc.optim.sampler import BlockCyclicSampler
from bcsc.training.checkpoint import digest
from bcsc.training.trainer import Batch, LossFunction

TEST_BATCH_SIZE = 500
NUM_COMPARED = 16  # labels of a data set that is not in memory


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


def describe_own(
    model: nn.Module, train_set: Dataset[Any], test_set: Dataset[Any], loss_fn: LossFunction
) -> dict[str, Any]:
    """The data and the model of a ``RunSpec``, in a few words and a mark each, which is another for another one."""
    tensors = [(name, tuple(x.shape), str(x.dtype)) for name, x in model.state_dict().items() if isinstance(x, Tensor)]
    num_parameters = sum(p.numel() for p in model.parameters())
    data = mark([contents(train_set), contents(test_set)])
    return {
        "data": f"{type(train_set).__name__} of {length_of(train_set)} samples ({data})",
        "model": f"{type(model).__name__} of {num_parameters} parameters ({mark([in_words(repr(model)), tensors])}), "
        f"{words_of(loss_fn)}",
    }


def mark(value: object) -> str:
    """Eight digits that another value has hardly ever."""
    return digest(value)[:8]


def contents(dataset: Dataset[Any]) -> list[Any]:
    """All tensors of a data set in memory; of any other some labels, as inputs may be augmented at random."""
    if type(dataset) is TensorDataset:
        return list(dataset.tensors)
    length = length_of(dataset)
    places = sorted({number * (length - 1) // (NUM_COMPARED - 1) for number in range(NUM_COMPARED)})
    with torch.random.fork_rng(devices=[]):
        first, again = (list(labels(dataset, places)) for _ in range(2))
    return [
        length,
        *(one if digest(one) == digest(other) else "random" for one, other in zip(first, again, strict=True)),
    ]


def labels(dataset: Dataset[Any], places: Iterable[int]) -> Iterable[Any]:
    """The labels at some places; of an unusual kind its name."""
    for place in places:
        sample = cast(Any, dataset)[place]
        label: Any = sample[1] if isinstance(sample, tuple | list) and len(sample) == 2 else None
        plain = label.item() if hasattr(label, "item") and getattr(label, "size", None) == 1 else label
        yield plain if isinstance(plain, Tensor | int | float | str | bytes | None) else type(plain).__name__


def words_of(loss_fn: object) -> str:
    """A loss in words: its name, with what it is given."""
    if isinstance(loss_fn, partial):
        return in_words(f"{words_of(loss_fn.func)} with {loss_fn.args} {sorted(loss_fn.keywords.items())}")
    if isinstance(loss_fn, nn.Module):
        buffers = list(loss_fn.buffers())  # such as the weights of classes
        return in_words(f"{loss_fn!r} ({mark(buffers)})" if buffers else repr(loss_fn))
    return str(getattr(loss_fn, "__qualname__", type(loss_fn).__name__))


def in_words(text: str) -> str:
    """In one line, without places in memory, which are others in another process."""
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(text.split()))
