"""Held-out samples: a stratified part of the training set, as it is, that stands in for the test set."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.data.dataset import DataSet, load, stratified_sample
from bcsc.data.outliers import Outliers
from bcsc.errors import InvalidArgumentError
from bcsc.seeding import stream


@given(st.lists(st.integers(0, 4), min_size=2, max_size=60), st.data(), st.integers(0, 9))
def test_every_class_has_its_share_give_or_take_one(labels: list[int], data: st.DataObject, seed: int) -> None:
    num_samples = data.draw(st.integers(1, len(labels)))
    tensor = torch.tensor(labels)
    chosen = stratified_sample(tensor, num_samples, stream(seed, "validation")).tolist()
    assert len(set(chosen)) == len(chosen) == num_samples
    assert chosen == sorted(chosen)
    for label in set(labels):
        share = labels.count(label) * num_samples / len(labels)
        assert abs(sum(labels[index] == label for index in chosen) - share) < 1


def test_every_sample_of_a_class_is_as_likely() -> None:
    labels = torch.tensor([0] * 6 + [1] * 2)
    counts = torch.zeros(8)
    for seed in range(600):
        counts[stratified_sample(labels, 4, stream(seed, "validation"))] += 1
    assert ((counts / 600 - 0.5).abs() < 0.1).all()


def test_training_and_held_out_samples_are_the_training_set_and_the_test_set_is_gone() -> None:
    whole = load("digits")
    split = whole.held_out(300, seed=7)
    assert (len(split.train_labels), len(split.test_labels)) == (len(whole.train_labels) - 300, 300)

    def rows(*images: torch.Tensor) -> set[bytes]:
        return {image.numpy().tobytes() for part in images for image in part}

    assert rows(split.train_images, split.test_images) == rows(whole.train_images)
    assert not rows(split.test_images) & (rows(whole.test_images) - rows(whole.train_images))
    counts, all_counts = split.test_labels.bincount(), whole.train_labels.bincount()
    assert ((counts - all_counts * 300 / len(whole.train_labels)).abs() < 1).all()


def test_the_split_depends_on_the_seed_alone() -> None:
    whole = load("digits")
    poisoned = replace(whole, test_images=whole.test_images * 0, test_labels=whole.test_labels.roll(1))
    first, again, other = whole.held_out(50, seed=1), poisoned.held_out(50, seed=1), whole.held_out(50, seed=2)
    assert torch.equal(first.test_images, again.test_images)
    assert torch.equal(first.train_labels, again.train_labels)
    assert not torch.equal(first.test_images, other.test_images)


def test_what_is_said_of_the_corruption_is_of_the_samples_that_are_left_to_train_on() -> None:
    clean = load("digits")
    split = clean.with_outliers(Outliers.parse("symmetric:0.1")).held_out(400, seed=0)
    corruption = split.corruption
    assert corruption is not None
    truth = truth_of(clean)
    samples = zip(split.train_images, split.train_labels.tolist(), strict=True)
    wrong = [i for i, (image, label) in enumerate(samples) if truth[image.numpy().tobytes()] != label]
    assert corruption.indices.tolist() == wrong
    assert corruption.realised == len(wrong) / len(split.train_labels)
    assert torch.equal(corruption.labels, split.train_labels)
    assert torch.equal(corruption.images, split.train_images)


def truth_of(clean: DataSet) -> dict[bytes, int]:
    """The label of every training image."""
    known = zip(clean.train_images, clean.train_labels.tolist(), strict=True)
    return {image.numpy().tobytes(): label for image, label in known}


def test_held_out_samples_keep_their_wrong_labels() -> None:
    """They are what whoever tunes has: docs/decisions/0005."""
    noisy = load("digits").with_outliers(Outliers.parse("symmetric:0.5"))
    split, truth = noisy.held_out(400, seed=0), truth_of(load("digits"))
    labels = zip(split.test_images, split.test_labels.tolist(), strict=True)
    wrong = sum(truth[image.numpy().tobytes()] != label for image, label in labels)
    assert 0.4 < wrong / 400 < 0.6


@pytest.mark.parametrize("number", [0, 1437, 5000])
def test_something_must_be_left_to_train_on(number: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"from 1 to 1436 of the 1437 training samples, got {number}"):
        load("digits").held_out(number, seed=0)
    with pytest.raises(InvalidArgumentError, match="nothing to hold out of 1 training sample. Take a larger subset"):
        load("digits").first(1).held_out(1, seed=0)
