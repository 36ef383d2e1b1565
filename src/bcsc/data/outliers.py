"""Corrupt training data on purpose, by the definitions the field uses.

Every kind is deterministic in a seed of its own. The samples to corrupt are the first so many of one random order, so
that at one seed a higher rate corrupts the samples of a lower rate and some more. Inputs are never changed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from bcsc.data.decoders.human_labels import read_human_labels
from bcsc.errors import InvalidArgumentError, check_choice
from bcsc.seeding import stream

HUMAN = "human"


@dataclass(frozen=True)
class Corruption:
    """Corrupted copies, and which samples differ from what they were."""

    images: Tensor
    labels: Tensor
    indices: Tensor  # of the corrupted samples, ascending
    requested: float | None  # nothing is requested of human labels: they are what they are
    realised: float  # corrupted samples / all samples


@dataclass(frozen=True)
class LabelledImages:
    """What there is to corrupt. ``confused_with`` maps classes to the one they are mistaken for (`asymmetric`)."""

    images: Tensor
    labels: Tensor
    num_classes: int
    confused_with: Mapping[int, int]


@dataclass(frozen=True)
class Outliers:
    """Which outliers to make: a kind and a rate, or a column of a file of human labels."""

    kind: str
    rate: float | None = None
    file: str | None = None
    column: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("The kind of outliers", self.kind, [*KINDS, HUMAN])
        if self.kind == HUMAN:
            if not self.file or not self.column or self.rate is not None:
                raise InvalidArgumentError("Human labels take a file and a column, as in human:FILE:COLUMN.")
        elif self.file or self.column or self.rate is None or not 0 <= self.rate <= 1:
            raise InvalidArgumentError(f"{self.kind} takes a rate from 0 to 1, as in {self.kind}:0.15, got {self}.")

    @classmethod
    def parse(cls, text: str, seed: int = 0) -> "Outliers":
        """``KIND:RATE``, or ``human:FILE:COLUMN``."""
        kind, _, rest = text.partition(":")
        check_choice("The kind of outliers", kind, [*KINDS, HUMAN])
        if kind == HUMAN:
            file, _, column = rest.rpartition(":")
            return cls(kind, file=file, column=column, seed=seed)
        try:
            rate = float(rest)
        except ValueError:
            raise InvalidArgumentError(f"{kind} takes a rate from 0 to 1, as in {kind}:0.15, got {text!r}.") from None
        return cls(kind, rate, seed=seed)

    def __str__(self) -> str:
        return f"{self.kind}:{self.file}:{self.column}" if self.kind == HUMAN else f"{self.kind}:{self.rate}"


def outliers_asked_for(text: str, seed: int = 0) -> Outliers | None:
    """Those of :meth:`Outliers.parse`, or nothing for ``none``."""
    return None if text == "none" else Outliers.parse(text, seed)


def corrupt(samples: LabelledImages, outliers: Outliers) -> Corruption:
    """Corrupted copies of the samples; what is not corrupted at all is shared, not copied."""
    images, labels = samples.images, samples.labels
    if outliers.rate is None:
        path, column = Path(str(outliers.file)), str(outliers.column)
        labels = read_human_labels(path, column, samples.labels, samples.num_classes)
        indices = (labels != samples.labels).nonzero().flatten()
    else:
        generator = stream(outliers.seed, "outliers")
        images, labels, indices = KINDS[outliers.kind](samples, outliers.rate, generator)
    return Corruption(images, labels, indices, outliers.rate, len(indices) / max(1, len(labels)))


Corrupted = tuple[Tensor, Tensor, Tensor]  # images, labels, indices


def symmetric(samples: LabelledImages, rate: float, generator: Generator) -> Corrupted:
    """Exactly ``round(rate * n)`` labels, each replaced by one of the other classes, all equally likely."""
    _need_two_classes(samples, "symmetric")
    chosen = _choose(torch.arange(len(samples.labels)), rate, generator)
    steps = torch.randint(1, samples.num_classes, chosen.shape, generator=generator)
    return _relabel(samples, chosen, (samples.labels[chosen] + steps) % samples.num_classes)


def symmetric_inclusive(samples: LabelledImages, rate: float, generator: Generator) -> Corrupted:
    """Exactly ``round(rate * n)`` labels drawn anew from all classes, so that some of them stay what they were."""
    chosen = _choose(torch.arange(len(samples.labels)), rate, generator)
    return _relabel(samples, chosen, torch.randint(samples.num_classes, chosen.shape, generator=generator))


def pairflip(samples: LabelledImages, rate: float, generator: Generator) -> Corrupted:
    """Exactly ``round(rate * n)`` labels, each replaced by the next class, the last by the first."""
    _need_two_classes(samples, "pairflip")
    following = {label: (label + 1) % samples.num_classes for label in range(samples.num_classes)}
    return _confuse(samples, following, rate, generator)


def asymmetric(samples: LabelledImages, rate: float, generator: Generator) -> Corrupted:
    """Of the samples whose class is easily mistaken for another, exactly the ``rate``-th part gets that label."""
    if not samples.confused_with:
        raise InvalidArgumentError("asymmetric outliers are not defined for this data set. Take symmetric or pairflip.")
    return _confuse(samples, samples.confused_with, rate, generator)


def image_noise(samples: LabelledImages, rate: float, generator: Generator) -> Corrupted:
    """Exactly ``round(rate * n)`` images turned to noise that has each channel's own mean and spread.

    The noise is the channel's pixels in random order. Gaussian noise would have to be clipped to 0..255, which on
    images as dark as MNIST's changes both.
    """
    chosen = _choose(torch.arange(len(samples.images)), rate, generator)
    images = samples.images.clone()
    for some in torch.split(chosen, 1024):  # keeps the order of the pixels, 8 bytes each, small beside the images
        channels = samples.images[some].flatten(2)
        order = torch.rand(channels.shape, generator=generator).argsort(-1)
        images[some] = channels.gather(-1, order).view_as(images[some])
    return images, samples.labels, chosen


def image_swap(samples: LabelledImages, rate: float, generator: Generator) -> Corrupted:
    """Exactly ``round(rate * n)`` images replaced by a training image of another class, all equally likely."""
    if len(samples.labels) and samples.labels.min() == samples.labels.max():
        raise InvalidArgumentError("image-swap needs images of at least 2 classes.")
    chosen = _choose(torch.arange(len(samples.images)), rate, generator)
    sizes = samples.labels.bincount(minlength=samples.num_classes)
    own_size, own_end = sizes[samples.labels[chosen]], sizes.cumsum(0)[samples.labels[chosen]]
    others = len(samples.labels) - own_size
    step = (torch.rand(chosen.shape, generator=generator, dtype=torch.float64) * others).long()
    by_class = samples.labels.argsort(stable=True)
    donors = by_class[(own_end + step) % len(samples.labels)]  # past the end of the own class, around to its start
    images = samples.images.clone()
    images[chosen] = samples.images[donors]
    return images, samples.labels, chosen


KINDS: Mapping[str, Callable[[LabelledImages, float, Generator], Corrupted]] = {
    "symmetric": symmetric,
    "symmetric-inclusive": symmetric_inclusive,
    "pairflip": pairflip,
    "asymmetric": asymmetric,
    "image-noise": image_noise,
    "image-swap": image_swap,
}


def _choose(eligible: Tensor, rate: float, generator: Generator) -> Tensor:
    """Exactly ``rate`` of the eligible, halves rounded up, ascending."""
    count = math.floor(rate * len(eligible) + 0.5)
    return eligible[torch.randperm(len(eligible), generator=generator)[:count]].sort().values


def _confuse(samples: LabelledImages, following: Mapping[int, int], rate: float, generator: Generator) -> Corrupted:
    """Replace labels by what follows them; every old label is read before any is written."""
    successor = torch.tensor([following.get(label, label) for label in range(samples.num_classes)])
    eligible = (successor[samples.labels] != samples.labels).nonzero().flatten()
    chosen = _choose(eligible, rate, generator)
    return _relabel(samples, chosen, successor[samples.labels[chosen]])


def _relabel(samples: LabelledImages, chosen: Tensor, new: Tensor) -> Corrupted:
    labels = samples.labels.clone()
    labels[chosen] = new
    return samples.images, labels, chosen[new != samples.labels[chosen]]


def _need_two_classes(samples: LabelledImages, kind: str) -> None:
    if samples.num_classes < 2:
        raise InvalidArgumentError(f"{kind} outliers need at least 2 classes, got {samples.num_classes}.")
