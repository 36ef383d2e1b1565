"""The real files are what everybody knows them to be."""

from dataclasses import replace

import pytest
import torch

from bcsc.data.dataset import check_content, data_root, load, pixel_statistics
from bcsc.data.decoders.cifar import CIFAR100_CLASSES, CIFAR100_COARSE_CLASSES, CIFAR100_SUPERCLASSES
from bcsc.data.fetching import files_that_differ
from bcsc.data.registry import SOURCES
from bcsc.errors import DataError

REAL = ("digits", "mnist", "cifar10", "cifar100", "cifar100-coarse")  # Fashion-MNIST only where someone has it


@pytest.mark.parametrize("name", [*REAL, "fashion-mnist"])
def test_images_and_labels_have_the_promised_types_and_shapes(real, name):
    dataset, source = real(name), SOURCES[name]
    shape = (source.channels, source.size, source.size)
    for images, labels, counts in (
        (dataset.train_images, dataset.train_labels, source.train_counts),
        (dataset.test_images, dataset.test_labels, source.test_counts),
    ):
        assert images.shape == (sum(counts), *shape)
        assert images.dtype == torch.uint8
        assert labels.shape == (sum(counts),)
        assert labels.dtype == torch.int64


@pytest.mark.parametrize("name", [*REAL, "fashion-mnist"])
def test_every_class_is_as_frequent_as_known(real, name):
    dataset, source = real(name), SOURCES[name]
    assert tuple(dataset.train_labels.bincount().tolist()) == source.train_counts
    assert tuple(dataset.test_labels.bincount().tolist()) == source.test_counts


@pytest.mark.parametrize("name", [*REAL, "fashion-mnist"])
def test_normalisation_constants_are_the_statistics_of_all_training_pixels(real, name):
    dataset, source = real(name), SOURCES[name]
    scaled = dataset.train_images[:].to(torch.float32).div_(255)
    std, mean = torch.std_mean(scaled, dim=(0, 2, 3), correction=0)
    assert torch.allclose(mean, torch.tensor(source.mean), rtol=0, atol=6e-5)  # four decimals, and float sums
    assert torch.allclose(std, torch.tensor(source.std), rtol=0, atol=6e-5)


@pytest.mark.parametrize("name", [*REAL, "fashion-mnist"])
def test_content_check_accepts_the_real_files(real, name):
    check_content(real(name))


def test_content_check_refuses_other_labels_and_other_pixels():
    digits = load("digits")
    mislabelled = replace(digits, test_labels=digits.test_labels.roll(1).clamp(max=8))
    with pytest.raises(DataError, match=r"has \(35, 36, .*\) test images per class, these files have"):
        check_content(mislabelled)
    darker = replace(digits, train_images=digits.train_images // 2)
    with pytest.raises(DataError, match=r"has pixels of mean \(0\.3054,\) per channel, these files have \(0\.1"):
        check_content(darker)


def test_sizes_are_those_of_the_literature():
    sizes = {name: (sum(source.train_counts), sum(source.test_counts)) for name, source in SOURCES.items()}
    assert sizes == {
        "digits": (1437, 360),
        "mnist": (60_000, 10_000),
        "fashion-mnist": (60_000, 10_000),
        "cifar10": (50_000, 10_000),
        "cifar100": (50_000, 10_000),
        "cifar100-coarse": (50_000, 10_000),
    }


def test_cifar10_starts_with_a_frog_and_two_trucks(real):
    assert real("cifar10").train_labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]


def test_mnist_starts_as_in_every_book(real):
    dataset = real("mnist")
    assert dataset.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert dataset.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_mnist_files_hold_the_official_bytes_however_they_are_compressed(real):
    real("mnist")
    assert files_that_differ(SOURCES["mnist"], data_root()) == []


def test_coarse_labels_are_the_superclasses_of_the_fine_ones(real):
    fine, coarse = real("cifar100"), real("cifar100-coarse")
    superclass_of = {name: group for group, names in CIFAR100_SUPERCLASSES.items() for name in names}
    table = torch.tensor([CIFAR100_COARSE_CLASSES.index(superclass_of[name]) for name in CIFAR100_CLASSES])
    assert torch.equal(table[fine.train_labels], coarse.train_labels)
    assert torch.equal(table[fine.test_labels], coarse.test_labels)
    assert torch.equal(fine.train_images, coarse.train_images)


def test_pixel_statistics_are_exact():
    images = torch.tensor([0, 255, 255, 255], dtype=torch.uint8).view(1, 1, 2, 2).expand(3, 2, 2, 2)
    mean, std = pixel_statistics(images)
    assert mean == (0.75, 0.75)
    assert std == pytest.approx((0.1875**0.5,) * 2, rel=1e-12)
