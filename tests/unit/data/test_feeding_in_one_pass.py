"""Feeding by a compiled loop: the bits of feeding by torch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.data import transforms
from bcsc.data.feeding import Feeder, Step
from bcsc.kernels import passes
from bcsc.seeding import stream
from tests.unit.runs import tiny_run
from tests.without_numba import without_numba

pytest.importorskip("numba")

shapes = st.tuples(st.integers(1, 7), st.integers(1, 4), st.integers(1, 40), st.integers(1, 40))
constants = st.floats(-3, 3, width=32), st.sampled_from([0.25, 0.2, 1e-3, 1e-30, 0.0, float("inf")])


@given(shapes, st.integers(0, 5), st.booleans(), st.integers(0, 1000), *constants)
def test_it_gives_the_bits_of_torch(shape, spare, augment, seed, mean, std) -> None:
    generator = stream(seed, "test")
    images = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    options = {"mean": [mean] * shape[1], "std": [std] * shape[1], "seed": seed, "image_size": max(shape[2:]) + spare}
    feeder = Feeder(images, torch.arange(shape[0]), augment=augment, **options)
    assert transforms.can_feed_in_one_pass(feeder.images)
    steps = [Step(i, torch.randint(shape[0], (7,), generator=generator), slice(i % 2, None, 2)) for i in range(4)]
    fast = list(feeder.batches(seed, steps))
    with without_numba():
        general = list(feeder.batches(seed, steps))
    for (images, labels), (own_images, own_labels) in zip(fast, general, strict=True):
        assert passes.same_numbers(images, own_images)
        assert images.dtype == own_images.dtype
        assert torch.equal(labels, own_labels)


def test_every_augmentation_of_small_and_padded_images_gives_the_bits_of_torch() -> None:
    for height, width, size in [(1, 1, 1), (2, 3, 3), (3, 2, 4), (5, 5, 5), (28, 28, 32), (32, 32, 32)]:
        images = torch.randint(256, (3, 2, height, width), generator=stream(size, "test"), dtype=torch.uint8)
        draws = torch.arange(transforms.NUM_AUGMENTATIONS)
        scale, shift = torch.tensor([0.1, 0.3]).view(2, 1, 1), torch.tensor([-1.0, 0.7]).view(2, 1, 1)
        out = torch.full((len(draws), 2, size, size), float("nan"))
        assert transforms.feed_in_one_pass(images, draws % 3, draws, (scale, shift), out)
        pixels = transforms.crop_and_flip(images, draws % 3, draws, transforms.all_crops(size))
        assert torch.equal(out, transforms.normalise(pixels, scale, shift))


def test_indices_of_no_image_are_refused_as_by_torch() -> None:
    feeder = Feeder(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.arange(3), mean=[0], std=[1])
    for index in (3, -1):
        with pytest.raises(IndexError, match="out of range"):
            feeder.batch(torch.tensor([0, index]))


def test_other_layouts_and_types_of_indices_are_left_to_torch() -> None:
    images = torch.randint(256, (3, 2, 4, 4), generator=stream(0, "test"), dtype=torch.uint8)
    options = {"mean": [0.5] * 2, "std": [0.2] * 2}
    expected, _ = Feeder(images, torch.arange(3), **options).batch(torch.tensor([2, 0]))
    turned = images.to(memory_format=torch.channels_last)
    assert not transforms.can_feed_in_one_pass(turned)
    assert torch.equal(Feeder(turned, torch.arange(3), **options).batch(torch.tensor([2, 0]))[0], expected)
    short = torch.tensor([2, 0], dtype=torch.int32)
    assert torch.equal(Feeder(images, torch.arange(3), **options).batch(short)[0], expected)


def test_a_loop_that_gives_other_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    expected = tiny_run.train(tmp_path / "one", epochs=1).history
    transforms.feeds_to_the_bit.cache_clear()
    try:
        monkeypatch.setattr(transforms, "feed_in_one_pass", lambda *arguments: arguments[-1].zero_() is not None)
        assert not transforms.feeds_to_the_bit()
    finally:
        transforms.feeds_to_the_bit.cache_clear()
    with without_numba():
        other = tiny_run.train(tmp_path / "other", epochs=1).history
    assert [(row.train_loss, row.test_loss) for row in expected] == [(row.train_loss, row.test_loss) for row in other]
