"""Crop, flip and normalise a whole batch of images at once."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

PADDING = 4
SHIFTS = 2 * PADDING + 1  # places for a crop, down and across
NUM_AUGMENTATIONS = SHIFTS * SHIFTS * 2  # each crop as it is, and each flipped


def draw_augmentations(num_images: int, generator: Generator) -> Tensor:
    """One of the 81 crops, flipped or not, for each image; all equally likely."""
    return torch.randint(NUM_AUGMENTATIONS, (num_images,), generator=generator)


def crop_and_flip(images: Tensor, augmentations: Tensor) -> Tensor:
    """Each image flipped or not, padded by 4 black pixels all around and cropped back to its size.

    Augmentation ``(flip * 9 + top) * 9 + left`` crops ``top`` rows and ``left`` columns into the padded image.
    """
    flip, top, left = augmentations // SHIFTS**2, augmentations // SHIFTS % SHIFTS, augmentations % SHIFTS
    # A flipped image cropped on the left is the image cropped as far from the right, and then flipped.
    left = torch.where(flip == 1, SHIFTS - 1 - left, left)
    cropped = crop(F.pad(images, (PADDING,) * 4), top, left, images.shape[-2:])
    flipped = flip.nonzero().flatten()
    return cropped.index_copy_(0, flipped, cropped.index_select(0, flipped).flip(-1))


def crop(images: Tensor, top: Tensor, left: Tensor, size: Sequence[int]) -> Tensor:
    """From each image a window of its own, copied in one go.

    A view has a window start at every pixel in memory, overlapping as they may; the wanted ones are then selected as
    rows are selected from a matrix, which is several times faster than any indexing by pixel.
    """
    num_images, channels, height, width = images.shape
    strides = (1, height * width, width, 1)
    reach = (channels - 1) * strides[1] + (size[0] - 1) * width + size[1]
    windows = images.contiguous().as_strided((images.numel() - reach + 1, channels, *size), strides)
    starts = torch.arange(num_images, device=images.device) * (channels * height * width) + top * width + left
    return windows.index_select(0, starts)


def pad_to(images: Tensor, size: int) -> Tensor:
    """Black pixels around the images, evenly, until they are ``size`` x ``size``."""
    rows, columns = size - images.shape[-2], size - images.shape[-1]
    return F.pad(images, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))


def normalise(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Bytes to floats: ``byte * scale + shift`` by channel."""
    return images.float().mul_(scale).add_(shift)
