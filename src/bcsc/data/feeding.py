"""Batches from memory: the whole set lives on the device as bytes, a batch is gathered and prepared there in one go."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from bcsc.data.dataset import DataSet
from bcsc.data.transforms import (
    Crops,
    all_crops,
    can_feed_in_one_pass,
    crop_and_flip,
    draw_augmentations,
    feed_in_one_pass,
    normalise,
    pad_to,
)
from bcsc.errors import InvalidArgumentError, check_at_least
from bcsc.seeding import stream, stream_key

EVERYTHING = slice(None)
IMAGES_AT_ONCE = 2048  # cropped together: enough that their number counts and not the calls, and they fit in the cache
IMAGES_FED_AT_ONCE = 512  # as floats: four times as large


class Step(NamedTuple):
    """The samples of one step of an epoch, and the part of them that is wanted."""

    number: int
    indices: Tensor
    part: slice = EVERYTHING


class Feeder(Dataset[tuple[Tensor, int]]):
    """Images and labels in memory, served as normalised batches.

    What a batch looks like depends on the seed, the epoch and the step alone, so that a resumed epoch sees the same.
    It is also an ordinary ``Dataset`` for loops of one's own: there an image's augmentation depends on the seed,
    on its index, and on the epoch last told to :meth:`set_epoch`.

    Args:
        images: uint8, N x C x H x W; not copied where it is on the device already.
        labels: int64.
        mean, std: of each channel, for pixels scaled to 0..1.
        augment: crop and flip at random.
        seed: of the augmentation.
        image_size: put the images on a black square of this size; the images' own by default.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        augment: bool = False,
        seed: int = 0,
        image_size: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        if images.dtype != torch.uint8 or images.dim() != 4 or len(images) != len(labels):
            raise InvalidArgumentError(
                f"images must be uint8 of shape N x C x H x W with N labels, "
                f"got {images.dtype} of shape {tuple(images.shape)} and {len(labels)} labels."
            )
        least, num_channels = max(images.shape[-2:]), images.shape[1]
        self.image_size = least if image_size is None else check_at_least("image_size", image_size, least)
        if len(mean) != num_channels or len(std) != num_channels:
            raise InvalidArgumentError(
                f"mean and std must have a number for each of the {num_channels} channels, got {mean} and {std}."
            )
        self.images, self.labels = images.to(device), labels.to(device)
        channels = torch.tensor([mean, std], dtype=torch.float64)[..., None, None]
        self._scale = (1 / (255 * channels[1])).float().to(device)
        self._shift = (-channels[0] / channels[1]).float().to(device)
        self.augment, self.seed, self.epoch = augment, seed, 0

    def __len__(self) -> int:
        return len(self.images)

    @cached_property
    def _crops(self) -> Crops:
        return all_crops(self.image_size, self.images.device)

    def batch(self, indices: Tensor, epoch: int = 0, step: int = 0, part: slice = EVERYTHING) -> tuple[Tensor, Tensor]:
        """The images and labels at ``indices``, as step ``step`` of epoch ``epoch`` sees them, or a part of them."""
        return next(self.batches(epoch, [Step(step, indices, part)]))

    def batches(self, epoch: int, steps: Iterable[Step], *, overwrite: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of many steps: those of :meth:`batch`, but faster, as several are cropped and flipped at once.

        With ``overwrite`` some batches are made at once, and their images take the place of those before them in
        memory, which is faster still, for a loop that keeps none and takes no gradient with respect to them.
        """
        place = self._scale.new_empty(0, self.images.shape[1], self.image_size, self.image_size)
        for group in groups_of_images(steps, IMAGES_AT_ONCE):
            wanted = [step.indices[step.part] for step in group]
            indices, draws = torch.cat(wanted).to(self.images.device), self._draws(epoch, group)
            labels = torch.split(self.labels.index_select(0, indices), list(map(len, wanted)))
            pixels = None if can_feed_in_one_pass(self.images) else self._prepared(indices, draws)
            first = begin = 0
            for some in groups_of_images(group, IMAGES_FED_AT_ONCE if overwrite else 0):
                sizes = [len(own) for own in wanted[first : first + len(some)]]
                own = slice(begin, begin + sum(sizes))
                if not overwrite or len(place) < sum(sizes):
                    place = self._scale.new_empty(sum(sizes), *place.shape[1:])
                images = place if len(place) == sum(sizes) else place[: sum(sizes)]
                if pixels is None:
                    self._feed(indices[own], None if draws is None else draws[own], images)
                else:
                    normalise(pixels[own], self._scale, self._shift, images)
                own_labels = labels[first : first + len(some)]
                yield from zip(torch.split(images, sizes) if len(some) > 1 else [images], own_labels, strict=True)
                first, begin = first + len(some), own.stop

    def _feed(self, indices: Tensor, draws: Tensor | None, out: Tensor) -> None:
        if not feed_in_one_pass(self.images, indices, draws, (self._scale, self._shift), out):
            normalise(self._prepared(indices, draws), self._scale, self._shift, out)

    def pixels(self, indices: Tensor, epoch: int = 0, step: int = 0) -> Tensor:
        """The images of :meth:`batch` before they are normalised, as bytes."""
        return self._prepared(indices.to(self.images.device), self._draws(epoch, [Step(step, indices)]))

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        position = range(len(self))[index]
        draw = (
            draw_augmentations(1, stream(self.seed, "augment-sample", self.epoch, position)) if self.augment else None
        )
        pixels = self._prepared(torch.tensor([position], device=self.images.device), draw)
        return normalise(pixels, self._scale, self._shift)[0], int(self.labels[position])

    def set_epoch(self, epoch: int) -> None:
        """Augment differently from now on when used as a ``Dataset``."""
        self.epoch = epoch

    def _draws(self, epoch: int, steps: Sequence[Step]) -> Tensor | None:
        """An augmentation for every image that is wanted, each step's from a stream of its own."""
        if not self.augment:
            return None
        generator = torch.Generator()  # begun anew for each stream, which is faster than a new one
        keys = (stream_key(self.seed, "augment", epoch, step.number) for step in steps)
        streams = zip(steps, map(generator.manual_seed, keys), strict=True)
        return torch.cat([draw_augmentations(len(step.indices), own)[step.part] for step, own in streams])

    def _prepared(self, indices: Tensor, augmentations: Tensor | None) -> Tensor:
        if augmentations is None:
            return pad_to(self.images.index_select(0, indices), self.image_size)
        return crop_and_flip(self.images, indices, augmentations, self._crops)


def groups_of_images(steps: Iterable[Step], num_images: int) -> Iterator[list[Step]]:
    """The steps in order, as many together as have ``num_images`` samples; a larger one is by itself."""
    group: list[Step] = []
    size = 0
    for step in steps:
        if group and size + len(step.indices) > num_images:
            yield group
            group, size = [], 0
        group.append(step)
        size += len(step.indices)
    if group:
        yield group


def training_feeder(
    dataset: DataSet, seed: int, *, image_size: int | None = None, device: torch.device | str = "cpu"
) -> Feeder:
    """The training part, normalised, and augmented where that is usual for the data set."""
    source = dataset.source
    return Feeder(
        dataset.train_images,
        dataset.train_labels,
        mean=source.mean,
        std=source.std,
        augment=source.augment,
        seed=seed,
        image_size=image_size,
        device=device,
    )


def evaluation_feeder(dataset: DataSet, *, image_size: int | None = None, device: torch.device | str = "cpu") -> Feeder:
    """The test part, normalised and otherwise untouched."""
    source = dataset.source
    return Feeder(
        dataset.test_images,
        dataset.test_labels,
        mean=source.mean,
        std=source.std,
        image_size=image_size,
        device=device,
    )
