"""Crop, flip and normalise a whole batch of images at once."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

PADDING = 4
SHIFTS = 2 * PADDING + 1  # places for a crop, down and across
NUM_AUGMENTATIONS = SHIFTS * SHIFTS * 2  # each crop as it is, and each flipped


def draw_augmentations(num_images: int, generator: Generator) -> Tensor:
    """One of the 81 crops, flipped or not, for each image; all equally likely."""
    return torch.randint(NUM_AUGMENTATIONS, (num_images,), generator=generator)


class Crops(NamedTuple):
    """The crops that the augmentations make of images of one size, for images that lie end to end in memory.

    A crop that is as wide as its image is one stretch of memory: it begins some pixels before or after the image, and
    what reaches over an edge is blackened. So images are cropped at the speed of copying, and need no ground to lie on.
    """

    size: int
    starts: Tensor  # by augmentation, counted from the first pixel of the image
    inside: Tensor  # by augmentation, for each pixel of the crop 255 if it is of the image, else 0


def all_crops(size: int, device: torch.device | str = "cpu") -> Crops:
    """Those of ``size`` x ``size`` pixels.

    Augmentation ``(flip * 9 + top) * 9 + left`` begins ``top`` rows and ``left`` columns in, on a black ground with 4
    pixels to spare around the image.
    """
    augmentations, along = torch.arange(NUM_AUGMENTATIONS)[:, None], torch.arange(size)
    first_row, first_column = augmentations // SHIFTS % SHIFTS - PADDING, augmentations % SHIFTS - PADDING
    rows, columns = ((place >= 0) & (place < size) for place in (first_row + along, first_column + along))
    inside = (rows[:, :, None] & columns[:, None, :]).flatten(1).to(torch.uint8) * 255
    return Crops(size, (first_row * size + first_column).flatten().to(device), inside.to(device))


def crop_and_flip(images: Tensor, indices: Tensor, augmentations: Tensor, crops: Crops) -> Tensor:
    """The images at ``indices``, each flipped or not and cropped.

    They are gathered with the flipped ones last, flipped in one piece, and put in order by the crop.
    """
    if not len(indices):
        return images.new_empty(0, images.shape[1], crops.size, crops.size)
    by_augmentation = augmentations.sort()
    num_straight = int(torch.searchsorted(by_augmentation.values, SHIFTS**2))
    order, augmentations = by_augmentation.indices.to(images.device), augmentations.to(images.device)
    length = images.shape[1] * crops.size**2
    spare = math.ceil(PADDING * (crops.size + 1) / length)  # images at either end, for crops that reach over it
    pixels = images.index_select(0, F.pad(indices[order], (spare, spare)))
    flipped = pixels[spare + num_straight :]
    flipped.copy_(flipped.flip(-1))
    pixels = pad_to(pixels, crops.size)
    stretches = pixels.as_strided((pixels.numel() - length + 1, length), (1, 1))
    starts = crops.starts.index_select(0, augmentations).add_(order.argsort().add_(spare), alpha=length)
    cropped = stretches.index_select(0, starts).view(len(indices), images.shape[1], -1)
    cropped.bitwise_and_(crops.inside.index_select(0, augmentations)[:, None])
    return cropped.view(*cropped.shape[:2], crops.size, crops.size)


def pad_to(images: Tensor, size: int) -> Tensor:
    """Black pixels around the images, evenly, until they are ``size`` x ``size``."""
    rows, columns = size - images.shape[-2], size - images.shape[-1]
    if rows == columns == 0:
        return images
    return F.pad(images, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))


def normalise(images: Tensor, scale: Tensor, shift: Tensor, out: Tensor | None = None) -> Tensor:
    """Bytes to floats: ``byte * scale + shift`` by channel."""
    floats = torch.empty_like(images, dtype=torch.float32) if out is None else out
    return floats.copy_(images).mul_(scale).add_(shift)
