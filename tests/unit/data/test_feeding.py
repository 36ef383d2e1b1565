import os
import subprocess
import sys
from functools import partial
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from bcsc.data.dataset import DataSet, load
from bcsc.data.feeding import (
    IMAGES_AT_ONCE,
    IMAGES_FED_AT_ONCE,
    Feeder,
    Step,
    evaluation_feeder,
    groups_of_images,
    training_feeder,
)
from bcsc.data.registry import SOURCES
from bcsc.data.transforms import NUM_AUGMENTATIONS
from bcsc.errors import InvalidArgumentError
from bcsc.seeding import stream

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
IMAGES = torch.randint(256, (20, 3, 8, 8), generator=stream(0, "test"), dtype=torch.uint8)
LABELS = torch.arange(20)


def normalised(images):
    """The definition: scale to 0..1, subtract the mean, divide by the deviation, in double precision."""
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (MEAN, STD))
    return (images.double() / 255 - mean) / std


def feeder(**options):
    return Feeder(IMAGES, LABELS, mean=MEAN, std=STD, **options)


def all_augmentations(index):
    """By the definition: all crops of the padded image, then all crops of the flipped one."""
    padded = F.pad(torch.stack([IMAGES[index], IMAGES[index].flip(-1)]), (4, 4, 4, 4))
    return padded.unfold(-2, 8, 1).unfold(-2, 8, 1).permute(0, 2, 3, 1, 4, 5).reshape(NUM_AUGMENTATIONS, 3, 8, 8)


def test_batch_without_augmentation_is_the_normalised_images_in_the_asked_order():
    indices = torch.tensor([3, 0, 3, 19])
    images, labels = feeder().batch(indices)
    assert torch.allclose(images.double(), normalised(IMAGES[indices]), rtol=0, atol=1e-5)  # floats of size 10 at most
    assert images.dtype == torch.float32
    assert labels.tolist() == [3, 0, 3, 19]


def test_every_augmented_image_is_exactly_one_of_the_162_of_its_source():
    fed = feeder(augment=True, seed=1)
    images, _ = fed.batch(torch.arange(20), epoch=2, step=3)
    for index, image in enumerate(images):
        candidates = all_augmentations(index)
        as_fed = Feeder(candidates, torch.zeros(NUM_AUGMENTATIONS), mean=MEAN, std=STD)
        matches = (as_fed.batch(torch.arange(NUM_AUGMENTATIONS))[0] == image).flatten(1).all(1)
        assert matches.sum() == 1


def test_all_162_augmentations_of_a_source_occur_equally_often():
    fed, per_cell = feeder(augment=True), 100
    number = {candidate.numpy().tobytes(): i for i, candidate in enumerate(all_augmentations(0))}
    counts = torch.zeros(NUM_AUGMENTATIONS)
    for step in range(per_cell):
        for image in fed.pixels(torch.zeros(NUM_AUGMENTATIONS, dtype=torch.int64), epoch=0, step=step):
            counts[number[image.numpy().tobytes()]] += 1
    freedom = NUM_AUGMENTATIONS - 1
    assert abs(((counts - per_cell) ** 2 / per_cell).sum().item() - freedom) < 4 * (2 * freedom) ** 0.5


def test_padding_is_black_before_normalisation():
    white = Feeder(
        torch.full((64, 3, 8, 8), 255, dtype=torch.uint8), LABELS[:1].repeat(64), mean=MEAN, std=STD, augment=True
    )
    images, _ = white.batch(torch.arange(64))
    black = normalised(torch.zeros(3, 1, 1)).flatten()
    for channel in range(3):
        assert images[:, channel].min().item() == pytest.approx(black[channel].item(), abs=1e-6)


def test_a_resumed_epoch_sees_the_same_augmentation():
    indices = torch.arange(20)
    assert torch.equal(
        feeder(augment=True, seed=5).batch(indices, epoch=7, step=9)[0],
        feeder(augment=True, seed=5).batch(indices, epoch=7, step=9)[0],
    )


@pytest.mark.parametrize("other", [{"epoch": 1}, {"step": 1}])
def test_epochs_and_steps_are_augmented_differently(other):
    fed, indices = feeder(augment=True), torch.arange(20)
    assert not torch.equal(fed.batch(indices)[0], fed.batch(indices, **other)[0])


def test_seeds_are_augmented_differently():
    indices = torch.arange(20)
    assert not torch.equal(feeder(augment=True).batch(indices)[0], feeder(augment=True, seed=1).batch(indices)[0])


def test_feeding_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    feeder(augment=True).batch(torch.arange(20))
    assert torch.equal(torch.get_rng_state(), before)


def test_images_are_not_copied():
    assert feeder(augment=True).images.data_ptr() == IMAGES.data_ptr()


def test_smaller_images_are_padded_on_request():
    images, _ = feeder(image_size=12).batch(torch.arange(20))
    assert torch.equal(images[..., 2:10, 2:10], feeder().batch(torch.arange(20))[0])
    assert images.shape[-2:] == (12, 12)


def test_works_as_an_ordinary_dataset():
    fed = feeder()
    batches = list(DataLoader(fed, batch_size=8))
    assert torch.equal(torch.cat([images for images, _ in batches]), fed.batch(torch.arange(20))[0])
    assert torch.cat([labels for _, labels in batches]).tolist() == LABELS.tolist()
    assert isinstance(fed[0][1], int)
    assert fed[-1][1] == 19
    with pytest.raises(IndexError, match="out of range"):
        fed[20]


def test_a_dataset_repeats_an_epoch_and_varies_between_epochs():
    fed = feeder(augment=True)

    def epoch(number):
        fed.set_epoch(number)
        return torch.stack([image for image, _ in fed])

    first = epoch(0)
    assert not torch.equal(epoch(1), first)
    assert torch.equal(epoch(0), first)


def test_samples_and_seeds_of_a_dataset_are_augmented_differently():
    alike = IMAGES[:1].repeat(20, 1, 1, 1)

    def augmented(seed):
        fed = Feeder(alike, LABELS, mean=MEAN, std=STD, augment=True, seed=seed)
        return [image.numpy().tobytes() for image, _ in fed]

    assert len(set(augmented(0))) > 10  # 20 draws of 162
    assert len(set(augmented(0) + augmented(1))) > len(set(augmented(0)))
    assert augmented(1) == augmented(1)


def test_training_is_augmented_and_evaluation_never(real):
    dataset = real("cifar10")
    assert training_feeder(dataset, seed=0).augment
    test = evaluation_feeder(dataset)
    assert not test.augment
    assert test.images is dataset.test_images
    assert not training_feeder(load("digits"), seed=0).augment


def test_whole_training_set_is_fed_with_mean_0_and_deviation_1():
    images, _ = training_feeder(load("digits"), seed=0).batch(torch.arange(1437))
    assert images.mean().item() == pytest.approx(0, abs=1e-3)  # the constants have four digits
    assert images.std().item() == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("images", "labels"),
    [(IMAGES.float(), LABELS), (IMAGES[0], LABELS[:3]), (IMAGES, LABELS[:-1])],
)
def test_wrong_images_are_refused(images, labels):
    with pytest.raises(InvalidArgumentError, match="images must be uint8 of shape N x C x H x W with N labels, got"):
        Feeder(images, labels, mean=MEAN, std=STD)


def test_images_are_never_cut_to_a_smaller_size():
    with pytest.raises(InvalidArgumentError, match="image_size must be a whole number of at least 8, got 7"):
        feeder(image_size=7)


@pytest.mark.parametrize(("mean", "std"), [((0.5,), STD), (MEAN, (0.2,) * 4)])
def test_constants_for_other_channels_are_refused(mean, std):
    with pytest.raises(InvalidArgumentError, match="mean and std must have a number for each of the 3 channels"):
        Feeder(IMAGES, LABELS, mean=mean, std=std)


FEED_TWO_EPOCHS = r"""
import re, torch
from pathlib import Path
from bcsc.data.feeding import Feeder, Step, training_feeder
from bcsc.data.dataset import DataSet, load
from bcsc.seeding import stream

def peak():
    # not getrusage, which counts what the parent process held before this one was started
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

black = torch.zeros(128, 3, 32, 32, dtype=torch.uint8)
Feeder(black, torch.zeros(128), mean=[0] * 3, std=[1] * 3, augment=True).batch(torch.arange(128))
before = peak()
dataset = load("cifar10", download=False)
feeder, largest = training_feeder(dataset, seed=0), 0
for epoch in range(2):
    shuffles = [torch.randperm(50_000, generator=stream(0, "shuffle", epoch, block)) for block in range(8)]
    mini_batches = (shuffle[t * 128 : t * 128 + 128] for t in range(391) for shuffle in shuffles)
    for images, labels in feeder.batches(epoch, (Step(*numbered) for numbered in enumerate(mini_batches))):
        largest = max(largest, images.nbytes)
print(peak() - before, 2 * dataset.train_images.nbytes + largest)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_two_epochs_in_eight_blocks_hold_peak_memory_under_twice_the_raw_set_and_a_batch(real):
    real("cifar10")
    done = subprocess.run(
        [sys.executable, "-c", FEED_TWO_EPOCHS], env=os.environ, capture_output=True, text=True, check=True
    )
    used, allowed = map(int, done.stdout.split())
    both_parts = 60_000 * 3 * 32 * 32
    assert both_parts < used < allowed


def test_the_parts_of_a_batch_are_what_the_whole_batch_has_there():
    fed, indices = feeder(augment=True, seed=1), torch.tensor([3, 0, 3, 19, 7])
    images, labels = fed.batch(indices, epoch=2, step=3)
    for part in (slice(0, None, 2), slice(1, None, 2), slice(0, 1)):
        part_images, part_labels = fed.batch(indices, epoch=2, step=3, part=part)
        assert torch.equal(part_images, images[part])
        assert torch.equal(part_labels, labels[part])


@pytest.mark.parametrize("augment", [False, True])
def test_a_part_without_samples_is_an_empty_batch(augment):
    images, labels = feeder(augment=augment).batch(torch.tensor([3]), part=slice(1, None))
    assert images.shape == (0, 3, 8, 8)
    assert labels.shape == (0,)


def own_steps():
    """Steps that are fed in groups of one and of several, one of them too large for a group, half of each wanted."""
    sizes = [1, 7, IMAGES_AT_ONCE // 2, IMAGES_AT_ONCE // 2, 3, 2 * IMAGES_AT_ONCE, 24, 24, IMAGES_AT_ONCE - 24, 1]
    drawn = [torch.randint(20, (size,), generator=stream(0, "test", size)) for size in sizes]
    return [Step(3 + i, indices, slice(i % 2, None, 2)) for i, indices in enumerate(drawn)]


@pytest.mark.parametrize("augment", [False, True])
def test_many_steps_are_fed_what_each_would_be_fed_by_itself(augment):
    fed = feeder(augment=augment, seed=1)
    steps = own_steps()
    fed_together = list(fed.batches(2, iter(steps)))
    assert len(fed_together) == len(steps)
    for (images, labels), step in zip(fed_together, steps, strict=True):
        own_images, own_labels = fed.batch(step.indices, 2, step.number, step.part)
        assert torch.equal(images, own_images)
        assert torch.equal(labels, own_labels)


def test_batches_that_overwrite_each_other_are_the_same():
    fed, steps, places = feeder(augment=True, seed=1), own_steps(), []
    for (images, labels), step in zip(fed.batches(2, steps, overwrite=True), steps, strict=True):
        own_images, own_labels = fed.batch(step.indices, 2, step.number, step.part)
        assert torch.equal(images, own_images)
        assert torch.equal(labels, own_labels)
        places.append(images.data_ptr())
    assert places[2] == places[3]
    assert places[6] < places[7]  # made at once


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_batches_may_begin_with_an_empty_one(layout):
    fed = Feeder(IMAGES.to(memory_format=layout), LABELS, mean=MEAN, std=STD)
    steps = [Step(0, torch.arange(0)), Step(1, torch.arange(3))]
    fed_together = [images.clone() for images, _ in fed.batches(0, steps, overwrite=True)]
    for images, step in zip(fed_together, steps, strict=True):
        assert torch.equal(images, feeder().batch(step.indices)[0])


@pytest.mark.parametrize("size", [IMAGES_FED_AT_ONCE // 4, IMAGES_FED_AT_ONCE // 3, 2 * IMAGES_FED_AT_ONCE])
def test_batches_take_turns_in_the_memory_of_a_few(size):
    at_once = max(1, IMAGES_FED_AT_ONCE // size)
    steps = [Step(i, torch.arange(size) % 20) for i in range(3 * at_once)]
    batches = feeder().batches(0, steps, overwrite=True)
    places = [(images.data_ptr(), images.nbytes) for images, _ in batches]
    assert places == places[:at_once] * 3
    assert all(here + size_in_bytes == there for (here, size_in_bytes), (there, _) in pairwise(places[:at_once]))


def test_batches_that_do_not_overwrite_each_other_have_memory_of_their_own():
    steps = [Step(i, torch.arange(8)) for i in range(6)]
    kept = [images for images, _ in feeder().batches(0, steps)]
    assert len({images.data_ptr() for images in kept}) == len(kept)
    assert all(images.untyped_storage().nbytes() == images.nbytes for images in kept)


def test_steps_are_grouped_in_order_up_to_the_number_of_images():
    steps = [Step(i, torch.arange(size)) for i, size in enumerate([1, 7, 700, 400, 3, 2000, 24, 1000, 1])]
    groups = [[step.number for step in group] for group in groups_of_images(iter(steps), 1024)]
    assert groups == [[0, 1, 2], [3, 4], [5], [6, 7], [8]]
    assert list(groups_of_images([], 1024)) == []


@pytest.mark.parametrize("build", [partial(training_feeder, seed=0), evaluation_feeder])
def test_a_feeder_of_a_data_set_is_where_and_as_large_as_it_is_asked_to_be(build) -> None:
    feeder = build(load("digits"), image_size=40, device="meta")
    assert feeder.images.device.type == feeder.labels.device.type == "meta"
    assert feeder.image_size == 40


def test_indices_that_lie_apart_in_memory_give_the_batch_of_those_that_do_not() -> None:
    feeder = training_feeder(load("digits"), seed=0)
    apart = torch.arange(20)[::2]
    for found, expected in zip(feeder.batch(apart), feeder.batch(apart.clone()), strict=True):
        assert torch.equal(found, expected)


def test_pixels_are_those_of_the_first_step_unless_told_otherwise() -> None:
    images = torch.randint(256, (9, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    feeder = Feeder(images, torch.zeros(9), mean=[0.5] * 3, std=[0.5] * 3, augment=True, seed=1)
    every = torch.arange(9)
    assert torch.equal(feeder.pixels(every), feeder.pixels(every, epoch=0, step=0))
    assert not torch.equal(feeder.pixels(every), feeder.pixels(every, epoch=0, step=1))
    assert not torch.equal(feeder.pixels(every), feeder.pixels(every, epoch=1, step=0))


def test_a_training_feeder_augments_with_the_seed_it_is_given() -> None:
    assert training_feeder(load("digits"), seed=3).seed == 3


def test_training_is_augmented_where_that_is_usual_for_the_data_set() -> None:
    for name, is_augmented in (("cifar10", True), ("digits", False)):
        images = IMAGES[:, : SOURCES[name].channels]
        dataset = DataSet(SOURCES[name], images, LABELS, images, LABELS)
        assert training_feeder(dataset, seed=0).augment == is_augmented
        assert not evaluation_feeder(dataset).augment


def test_indices_of_a_smaller_type_give_the_batch_of_the_same_indices() -> None:
    indices = torch.tensor([3, 0, 19])
    images, labels = feeder().batch(indices.int())
    assert torch.equal(images, feeder().batch(indices)[0])
    assert labels.tolist() == [3, 0, 19]


def test_the_images_of_a_batch_can_have_a_gradient_and_let_go_of_it_in_place() -> None:
    """As for adversarial samples; a part of a larger tensor could not."""
    images, _ = feeder().batch(torch.arange(4))
    images.requires_grad_().square().sum().backward()
    assert torch.equal(images.grad, 2 * images.detach_())
