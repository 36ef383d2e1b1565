"""Batches from memory: the whole set lives on the device as bytes, a batch is gathered and prepared there in one go."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

from bcsc.data.sources import DataSet
from bcsc.data.transforms import crop_and_flip, draw_augmentations, normalise, pad_to
from bcsc.errors import InvalidArgumentError
from bcsc.seeding import stream

EVERYTHING = slice(None)


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
        self.image_size = max(images.shape[-2:]) if image_size is None else image_size
        if self.image_size < max(images.shape[-2:]):
            raise InvalidArgumentError(f"image_size must be at least {max(images.shape[-2:])}, got {image_size}.")
        self.images, self.labels = images.to(device), labels.to(device)
        channels = torch.tensor([mean, std], dtype=torch.float64)[..., None, None]
        self._scale = (1 / (255 * channels[1])).float().to(device)
        self._shift = (-channels[0] / channels[1]).float().to(device)
        self.augment, self.seed, self.epoch = augment, seed, 0

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, indices: Tensor, epoch: int = 0, step: int = 0, part: slice = EVERYTHING) -> tuple[Tensor, Tensor]:
        """The images and labels at ``indices``, as step ``step`` of epoch ``epoch`` sees them, or a part of them."""
        labels = self.labels.index_select(0, indices[part].to(self.labels.device))
        return normalise(self.pixels(indices, epoch, step, part), self._scale, self._shift), labels

    def pixels(self, indices: Tensor, epoch: int = 0, step: int = 0, part: slice = EVERYTHING) -> Tensor:
        """The same images before they are normalised, as bytes."""
        return self._gather(indices, part, "augment", epoch, step)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        position = range(len(self))[index]
        pixels = self._gather(torch.tensor([position]), EVERYTHING, "augment-sample", self.epoch, position)
        return normalise(pixels, self._scale, self._shift)[0], int(self.labels[position])

    def set_epoch(self, epoch: int) -> None:
        """Augment differently from now on when used as a ``Dataset``."""
        self.epoch = epoch

    def _gather(self, indices: Tensor, part: slice, purpose: str, *position: int) -> Tensor:
        wanted = indices[part].to(self.images.device)
        if not self.augment:
            return pad_to(self.images.index_select(0, wanted), self.image_size)
        augmentations = draw_augmentations(len(indices), stream(self.seed, purpose, *position))[part]
        return crop_and_flip(self.images, wanted, augmentations, self.image_size)


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
