"""Crop, flip and normalise a whole batch of images at once."""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from bcsc.kernels.passes import checked, compiled_loops, same_numbers

PADDING = 4
SHIFTS = 2 * PADDING + 1  # places for a crop, down and across
NUM_AUGMENTATIONS = SHIFTS * SHIFTS * 2  # each crop as it is, and each flipped
UNTOUCHED = PADDING * SHIFTS + PADDING  # the augmentation that changes nothing


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


def can_feed_in_one_pass(images: Tensor) -> bool:
    """Whether there is a loop for images that lie there so."""
    return type(images) is Tensor and images.is_cpu and images.is_contiguous() and feeds_to_the_bit()


def feed_in_one_pass(
    images: Tensor, indices: Tensor, augmentations: Tensor | None, constants: tuple[Tensor, Tensor], out: Tensor
) -> bool:
    """Gather, crop, flip and normalise with scale and shift, if all indices are of images; says whether they are."""
    if indices.dtype != torch.int64 or not indices.is_contiguous():
        return False
    if augmentations is None:
        augmentations = torch.full_like(indices, UNTOUCHED)
    loops: Any = compiled_loops()
    plan = [x.data_ptr() for x in (images, out, indices, augmentations)]
    plan += [*images.shape, out.shape[-1], PADDING, len(indices), *[constant.data_ptr() for constant in constants]]
    found: bool = loops.feed_kernel()(np.array(plan, dtype=np.int64))
    return found


@cache
def feeds_to_the_bit() -> bool:
    """Whether the loop compiles and gives on a few images what the functions above give."""

    def check(_loops: Any) -> bool:
        size, augmentations = 13, torch.arange(NUM_AUGMENTATIONS)
        images = torch.arange(5 * 3 * 11 * 12).mul(37).remainder(256).to(torch.uint8).view(5, 3, 11, 12)
        scale, shift = (torch.tensor(x)[:, None, None] for x in ([0.0159, 0.0163, 0.0149], [-1.99, -1.98, -1.71]))
        indices = augmentations % 5
        pixels = crop_and_flip(images, indices, augmentations, all_crops(size))
        out = torch.empty(pixels.shape)
        found = feed_in_one_pass(images, indices, augmentations, (scale, shift), out)
        return found and same_numbers(out, normalise(pixels, scale, shift))

    return bool(checked(check))
