"""Crop, flip and normalise a whole batch of images at once."""

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

PADDING = 4
SHIFTS = 2 * PADDING + 1  # places for a crop, down and across
NUM_AUGMENTATIONS = SHIFTS * SHIFTS * 2  # each crop as it is, and each flipped


def draw_augmentations(num_images: int, generator: Generator) -> Tensor:
    """One of the 81 crops, flipped or not, for each image; all equally likely."""
    return torch.randint(NUM_AUGMENTATIONS, (num_images,), generator=generator)


def crop_and_flip(images: Tensor, indices: Tensor, augmentations: Tensor, size: int) -> Tensor:
    """The images at ``indices``, each flipped or not, on a black ground with 4 pixels to spare, cropped at random.

    Augmentation ``(flip * 9 + top) * 9 + left`` crops ``size`` x ``size`` pixels, ``top`` rows and ``left`` columns in.
    The images are gathered with the flipped ones last, flipped in one piece, and put in order by the crop.
    """
    if not len(indices):
        return images.new_empty(0, images.shape[1], size, size)
    by_augmentation = augmentations.sort()
    num_straight = int(torch.searchsorted(by_augmentation.values, SHIFTS**2))
    pixels = images.index_select(0, indices[by_augmentation.indices.to(indices.device)])
    side = size + 2 * PADDING
    ground = pixels.new_zeros(len(pixels), images.shape[1], side, side)
    top, left = ((side - length) // 2 for length in images.shape[-2:])
    middle = ground[:, :, top : top + images.shape[-2], left : left + images.shape[-1]]
    middle[:num_straight] = pixels[:num_straight]
    middle[num_straight:] = pixels[num_straight:].flip(-1)
    corner = augmentations % SHIFTS**2
    starts = torch.add(corner, corner // SHIFTS, alpha=side - SHIFTS)  # top * side + left
    places = by_augmentation.indices.argsort()
    return _windows(ground, starts + places * ground[0].numel(), size)


def _windows(images: Tensor, starts: Tensor, size: int) -> Tensor:
    """The window that begins at each of the given pixels, counted through all images, copied in one go.

    A view has a window begin at every pixel in memory, overlapping as they may; the wanted ones are then selected as
    rows are selected from a matrix, which is several times faster than any indexing by pixel.
    """
    _, channels, height, width = images.shape
    reach = (channels - 1) * height * width + (size - 1) * width + size
    windows = images.as_strided((images.numel() - reach + 1, channels, size, size), (1, height * width, width, 1))
    return windows.index_select(0, starts.to(images.device))


def pad_to(images: Tensor, size: int) -> Tensor:
    """Black pixels around the images, evenly, until they are ``size`` x ``size``."""
    rows, columns = size - images.shape[-2], size - images.shape[-1]
    return F.pad(images, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))


def normalise(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Bytes to floats: ``byte * scale + shift`` by channel."""
    return images.float().mul_(scale).add_(shift)
