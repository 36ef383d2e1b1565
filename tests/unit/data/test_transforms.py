import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.data.transforms import NUM_AUGMENTATIONS, all_crops, crop_and_flip, draw_augmentations, pad_to
from bcsc.seeding import stream

shapes = st.tuples(st.integers(1, 5), st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9))


def crop_and_flip_slowly(image, augmentation, size):
    """The definition, pixel by pixel."""
    flip, top, left = augmentation // 81, augmentation // 9 % 9, augmentation % 9
    channels, height, width = image.shape
    margins = (size + 8 - height) // 2, (size + 8 - width) // 2
    result = torch.zeros(channels, size, size, dtype=torch.uint8)
    for channel in range(channels):
        for row in range(size):
            for column in range(size):
                y, x = row + top - margins[0], column + left - margins[1]
                if 0 <= y < height and 0 <= x < width:
                    result[channel, row, column] = image[channel, y, width - 1 - x if flip else x]
    return result


@given(shapes, st.integers(0, 3), st.data())
def test_every_crop_and_flip_equals_its_definition(shape, spare, data):
    images = torch.randint(256, shape, generator=stream(sum(shape), "test"), dtype=torch.uint8)
    pairs = st.tuples(st.integers(0, shape[0] - 1), st.integers(0, NUM_AUGMENTATIONS - 1))
    indices, drawn = zip(*data.draw(st.lists(pairs, min_size=1, max_size=6)), strict=True)
    size = max(shape[-2:]) + spare
    expected = torch.stack([crop_and_flip_slowly(images[i], a, size) for i, a in zip(indices, drawn, strict=True)])
    assert torch.equal(crop_and_flip(images, torch.tensor(indices), torch.tensor(drawn), all_crops(size)), expected)


def test_the_162_augmentations_of_an_image_are_all_different():
    image = torch.randint(256, (1, 3, 8, 8), generator=stream(0, "test"), dtype=torch.uint8)
    every = torch.arange(NUM_AUGMENTATIONS)
    results = crop_and_flip(image, torch.zeros_like(every), every, all_crops(8))
    assert len(results.flatten(1).unique(dim=0)) == NUM_AUGMENTATIONS == 81 * 2


def test_all_augmentations_are_equally_likely():
    per_cell = 1000
    drawn = draw_augmentations(NUM_AUGMENTATIONS * per_cell, stream(0, "test"))
    counts = drawn.bincount(minlength=NUM_AUGMENTATIONS)
    chi_square = ((counts - per_cell) ** 2 / per_cell).sum().item()
    freedom = NUM_AUGMENTATIONS - 1
    assert len(counts) == NUM_AUGMENTATIONS
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5  # four standard deviations


def test_images_are_not_changed():
    images = torch.randint(256, (4, 3, 8, 8), generator=stream(0, "test"), dtype=torch.uint8)
    before = images.clone()
    crop_and_flip(images, torch.arange(4), torch.tensor([0, 80, 81, 161]), all_crops(8))
    assert torch.equal(images, before)


@pytest.mark.parametrize("size", [8, 11])
def test_how_images_lie_in_memory_does_not_matter(size):
    images = torch.randint(256, (4, 3, 8, 8), generator=stream(0, "test"), dtype=torch.uint8)
    rearranged = images.to(memory_format=torch.channels_last)
    indices, augmentations = torch.tensor([3, 0, 3, 1]), torch.tensor([0, 80, 81, 161])
    expected, got = (crop_and_flip(kind, indices, augmentations, all_crops(size)) for kind in (images, rearranged))
    assert torch.equal(got, expected)


@pytest.mark.parametrize(("side", "size", "before"), [(28, 32, 2), (27, 32, 2), (32, 32, 0)])
def test_padding_centres_the_image_in_black(side, size, before):
    images = torch.full((2, 1, side, side), 7, dtype=torch.uint8)
    padded = pad_to(images, size)
    assert padded.shape == (2, 1, size, size)
    assert (padded[..., before : before + side, before : before + side] == 7).all()
    assert padded.sum() == images.sum()
