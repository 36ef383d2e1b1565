"""Load a data set from its folder, and corrupt its training part on request."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Generator, Tensor

from bcsc.data.decoders.arrays import Arrays
from bcsc.data.fetching import fetch, missing_message
from bcsc.data.outliers import Corruption, LabelledImages, Outliers, corrupt
from bcsc.data.registry import find_source
from bcsc.data.source import Source
from bcsc.errors import DataError, InvalidArgumentError
from bcsc.files import user_cache
from bcsc.seeding import stream


@dataclass(frozen=True)
class DataSet:
    """A data set in memory: images as uint8 N x C x H x W, labels as int64."""

    source: Source
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    corruption: Corruption | None = None  # of the training part; the test part is always the true one

    def first(self, num_samples: int) -> "DataSet":
        """The same data set with the first training samples only, for a quick look."""
        self.source.check_subset(num_samples, len(self.train_labels))
        images, labels = self.train_images[:num_samples], self.train_labels[:num_samples]
        corruption = self._corruption_of(images, labels, torch.arange(len(self.train_labels)) < num_samples)
        return replace(self, train_images=images, train_labels=labels, corruption=corruption)

    def with_outliers(self, outliers: Outliers) -> "DataSet":
        """The same data set with corrupted training data."""
        if self.corruption is not None:
            raise InvalidArgumentError("This data set has outliers already. Make others from the clean one.")
        confused_with = self.source.confused_with
        samples = LabelledImages(self.train_images, self.train_labels, self.source.num_classes, confused_with)
        corruption = corrupt(samples, outliers)
        return replace(self, train_images=corruption.images, train_labels=corruption.labels, corruption=corruption)

    def held_out(self, num_samples: int, seed: int) -> "DataSet":
        """The same data set with a part of the training samples, as they are, in the place of the test set."""
        total = len(self.train_labels)
        self.source.check_held_out(num_samples, total)
        held = stratified_sample(self.train_labels, num_samples, stream(seed, "validation"))
        kept = torch.ones(total, dtype=torch.bool).index_fill_(0, held, False)
        images, labels = self.train_images[kept], self.train_labels[kept]
        return replace(
            self,
            train_images=images,
            train_labels=labels,
            test_images=self.train_images[held],
            test_labels=self.train_labels[held],
            corruption=self._corruption_of(images, labels, kept),
        )

    def _corruption_of(self, images: Tensor, labels: Tensor, kept: Tensor) -> Corruption | None:
        """What is left of the corruption in the training samples that are kept, which are given."""
        if self.corruption is None:
            return None
        indices = (kept.cumsum(0) - 1)[self.corruption.indices[kept[self.corruption.indices]]]
        realised = len(indices) / len(labels)
        return replace(self.corruption, images=images, labels=labels, indices=indices, realised=realised)


def stratified_sample(labels: Tensor, num_samples: int, generator: Generator) -> Tensor:
    """The indices, ascending, of samples drawn at random; each class has its share of them, give or take one."""
    shares = labels.bincount().double() * num_samples / len(labels)
    counts = shares.floor().long()
    counts[(shares - counts).argsort(descending=True, stable=True)[: num_samples - int(counts.sum())]] += 1
    order = torch.randperm(len(labels), generator=generator)
    chosen = [order[labels[order] == label][:count] for label, count in enumerate(counts.tolist())]
    return torch.cat(chosen).sort().values


def data_root(root: Path | str | None = None) -> Path:
    """The folder for data: as given, else ``$BCSC_DATA``, else the user's cache."""
    return Path(os.path.expanduser(root or os.environ.get("BCSC_DATA") or user_cache()))


def load(name: str, root: Path | str | None = None, *, download: bool = True) -> DataSet:
    """Read a data set, fetching it first where it is absent and ``download`` allows it."""
    source, folder = find_source(name), data_root(root)
    if source.missing(folder):
        if not download:
            raise DataError(missing_message(source, folder))
        fetch(source, folder)
    arrays = source.decode(folder / source.folder)
    _check_shapes(source, arrays, folder / source.folder)
    return DataSet(source, *arrays)


def check_content(dataset: DataSet) -> None:
    """Refuse a data set whose classes or pixels are not those of its source; the order of the images is free."""
    source, decimals = dataset.source, 4
    for part, labels, expected in (
        ("training", dataset.train_labels, source.train_counts),
        ("test", dataset.test_labels, source.test_counts),
    ):
        counts = tuple(labels.bincount(minlength=source.num_classes).tolist())
        if counts != expected:
            raise DataError(f"{source.title} has {expected} {part} images per class, these files have {counts}.")
    for name, found, known in zip(
        ("mean", "deviation"), pixel_statistics(dataset.train_images), (source.mean, source.std), strict=True
    ):
        rounded = tuple(round(value, decimals) for value in found)
        if rounded != known:
            raise DataError(f"{source.title} has pixels of {name} {known} per channel, these files have {rounded}.")


def _check_shapes(source: Source, arrays: Arrays, folder: Path) -> None:
    for part, images, counts in (
        ("training", arrays.train_images, source.train_counts),
        ("test", arrays.test_images, source.test_counts),
    ):
        expected = (sum(counts), source.channels, source.size, source.size)
        if tuple(images.shape) != expected:
            raise DataError(
                f"The {part} images in {folder} have shape {tuple(images.shape)}, those of {source.title} have "
                f"{expected}. Remove that folder and run: bcsc data get {source.name}"
            )


def pixel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel over all its pixels, scaled to 0..1; exact, from counts of values."""
    values = torch.arange(256, dtype=torch.float64) / 255
    shares = torch.stack([images[:, channel].flatten().bincount(minlength=256) for channel in range(images.shape[1])])
    shares = shares.double() / shares.sum(1, keepdim=True)
    mean = shares @ values
    std = ((shares * (values - mean[:, None]) ** 2).sum(1)).sqrt()
    return tuple(mean.tolist()), tuple(std.tolist())
