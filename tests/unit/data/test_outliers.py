import hashlib
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.data.dataset import load
from bcsc.data.outliers import KINDS, LabelledImages, Outliers, corrupt, outliers_asked_for
from bcsc.data.registry import SOURCES
from bcsc.errors import InvalidArgumentError
from bcsc.seeding import stream

CIFAR10 = SOURCES["cifar10"]
CONFUSED = CIFAR10.confused_with
LABEL_KINDS = ["symmetric", "symmetric-inclusive", "pairflip", "asymmetric"]
IMAGE_KINDS = ["image-noise", "image-swap"]


def samples(count=2000, num_classes=10, confused_with=CONFUSED):
    generator = stream(0, "test")
    images = torch.randint(256, (count, 2, 4, 4), generator=generator, dtype=torch.uint8)
    return LabelledImages(images, torch.randint(num_classes, (count,), generator=generator), num_classes, confused_with)


CLEAN = samples()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0, 0.15, 1])
def test_indices_are_exactly_the_samples_that_differ(kind, rate):
    result = corrupt(CLEAN, Outliers(kind, rate))
    differs = (result.labels != CLEAN.labels) | (result.images != CLEAN.images).flatten(1).any(1)
    assert result.indices.tolist() == differs.nonzero().flatten().tolist()
    assert result.requested == rate
    assert result.realised == len(result.indices) / len(CLEAN.labels)


@pytest.mark.parametrize("kind", ["symmetric", "pairflip", *IMAGE_KINDS])
@given(rate=st.floats(0, 1))
def test_realised_count_is_the_requested_rate_rounded(kind, rate):
    few = LabelledImages(CLEAN.images[:137], CLEAN.labels[:137], 10, CONFUSED)
    assert abs(len(corrupt(few, Outliers(kind, rate)).indices) - rate * 137) <= 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_originals_are_not_changed(kind):
    images, labels = CLEAN.images.clone(), CLEAN.labels.clone()
    corrupt(CLEAN, Outliers(kind, 0.5))
    assert torch.equal(CLEAN.images, images)
    assert torch.equal(CLEAN.labels, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_fixes_the_outliers_and_another_gives_others(kind):
    first, again, other = (corrupt(CLEAN, Outliers(kind, 0.3, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first.images, again.images)
    assert torch.equal(first.labels, again.labels)
    assert first.indices.tolist() != other.indices.tolist()


@pytest.mark.parametrize("kind", ["symmetric", "pairflip", "asymmetric", *IMAGE_KINDS])
def test_a_higher_rate_corrupts_the_same_samples_and_more(kind):
    fewer, more = (set(corrupt(CLEAN, Outliers(kind, rate)).indices.tolist()) for rate in (0.1, 0.2))
    assert fewer < more


@pytest.mark.parametrize("kind", LABEL_KINDS)
def test_label_kinds_leave_images_and_image_kinds_leave_labels(kind):
    assert corrupt(CLEAN, Outliers(kind, 0.5)).images is CLEAN.images
    for image_kind in IMAGE_KINDS:
        assert corrupt(CLEAN, Outliers(image_kind, 0.5)).labels is CLEAN.labels


def chi_square_is_plausible(counts):
    expected, freedom = counts.double().mean(), len(counts) - 1
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    return abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5


def test_symmetric_takes_every_other_class_equally_often():
    many = samples(90_000)
    result = corrupt(many, Outliers("symmetric", 1))
    steps = (result.labels - many.labels) % 10
    assert len(result.indices) == 90_000
    assert chi_square_is_plausible(steps.bincount(minlength=10)[1:])


def test_symmetric_inclusive_takes_every_class_equally_often_so_that_a_tenth_stays():
    many = samples(90_000)
    result = corrupt(many, Outliers("symmetric-inclusive", 1))
    steps = (result.labels - many.labels) % 10
    assert chi_square_is_plausible(steps.bincount(minlength=10))
    assert result.realised == pytest.approx(0.9, abs=0.004)  # four standard deviations


def test_pairflip_takes_the_next_class_and_the_first_after_the_last():
    result = corrupt(CLEAN, Outliers("pairflip", 0.4))
    assert torch.equal(result.labels[result.indices], (CLEAN.labels[result.indices] + 1) % 10)
    assert 0 in result.labels[result.indices]


def test_asymmetric_flips_exactly_its_share_of_the_confused_classes_and_no_other():
    result = corrupt(CLEAN, Outliers("asymmetric", 0.4))
    eligible = sum(int(label) in CONFUSED for label in CLEAN.labels)
    assert len(result.indices) == round(0.4 * eligible)
    for index in result.indices.tolist():
        assert int(result.labels[index]) == CONFUSED[int(CLEAN.labels[index])]


def test_asymmetric_does_not_compound():
    cats_and_dogs = LabelledImages(CLEAN.images[:100], torch.tensor([3, 5] * 50), 10, CONFUSED)
    result = corrupt(cats_and_dogs, Outliers("asymmetric", 1))
    assert result.labels.tolist() == [5, 3] * 50


def test_asymmetric_maps_are_those_of_the_field():
    names = CIFAR10.class_names
    assert {names[a]: names[b] for a, b in CONFUSED.items()} == {
        "truck": "automobile",
        "bird": "airplane",
        "deer": "horse",
        "cat": "dog",
        "dog": "cat",
    }
    assert SOURCES["mnist"].confused_with == {7: 1, 2: 7, 3: 8, 5: 6, 6: 5}


def test_asymmetric_cifar100_goes_round_each_superclass():
    source = SOURCES["cifar100"]
    number = {name: index for index, name in enumerate(source.class_names)}
    circle = ["bed", "chair", "couch", "table", "wardrobe", "bed"]
    for name, following in pairwise(circle):
        assert source.confused_with[number[name]] == number[following]
    assert sorted(source.confused_with) == sorted(source.confused_with.values()) == list(range(100))


def test_image_noise_keeps_the_mean_and_spread_of_each_channel():
    result = corrupt(CLEAN, Outliers("image-noise", 0.5))
    before, after = CLEAN.images[result.indices].flatten(2), result.images[result.indices].flatten(2)
    assert torch.equal(before.sort(-1).values, after.sort(-1).values)  # the same pixels have the same mean and spread


def test_image_noise_has_no_trace_of_the_image():
    gradient = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(500, 2, 16, 16)
    result = corrupt(LabelledImages(gradient, torch.zeros(500, dtype=torch.int64), 10, {}), Outliers("image-noise", 1))
    pixels = result.images.flatten(2).double()
    between_places = torch.corrcoef(torch.stack([pixels.mean((0, 1)), gradient[0, 0].flatten().double()]))[0, 1]
    between_channels = torch.corrcoef(torch.stack([pixels[:, 0].flatten(), pixels[:, 1].flatten()]))[0, 1]
    assert abs(between_places) < 4 / 256**0.5
    assert abs(between_channels) < 4 / (500 * 256) ** 0.5


def test_image_swap_brings_an_original_image_of_another_class():
    result = corrupt(CLEAN, Outliers("image-swap", 0.5))
    label_of = {image.numpy().tobytes(): int(label) for image, label in zip(CLEAN.images, CLEAN.labels, strict=True)}
    for index in result.indices.tolist():
        assert label_of[result.images[index].numpy().tobytes()] != int(CLEAN.labels[index])


def test_image_swap_takes_all_images_of_other_classes_equally_often():
    count = 20_000
    images = torch.zeros(count, 1, 1, 1, dtype=torch.uint8)
    labels = torch.tensor([0] * (count - 8) + [1] * 4 + [2] * 4)
    images[-8:] = torch.arange(1, 9, dtype=torch.uint8).view(8, 1, 1, 1)
    result = corrupt(LabelledImages(images, labels, 3, {}), Outliers("image-swap", 1))
    assert chi_square_is_plausible(result.images[:-8].flatten().bincount(minlength=9)[1:])


def test_test_set_never_changes():
    clean = load("digits")
    for kind in KINDS:
        dirty = clean.with_outliers(Outliers(kind, 0.5))
        assert torch.equal(dirty.test_images, load("digits").test_images)
        assert torch.equal(dirty.test_labels, load("digits").test_labels)
        assert dirty.corruption is not None
        assert clean.corruption is None


def test_outliers_are_not_made_of_outliers():
    dirty = load("digits").with_outliers(Outliers("symmetric", 0.1))
    with pytest.raises(InvalidArgumentError, match="has outliers already"):
        dirty.with_outliers(Outliers("pairflip", 0.1))


@pytest.mark.parametrize("kind", KINDS)
def test_counts_on_real_cifar10(real, kind):
    dataset = real("cifar10").with_outliers(Outliers(kind, 0.15))
    count = len(dataset.corruption.indices)
    if kind == "symmetric-inclusive":
        assert 6750 - 104 < count < 6750 + 104  # 9/10 of 7500, and four standard deviations
    else:
        assert count == (3750 if kind == "asymmetric" else 7500)  # five of the ten classes are confused


@given(st.sampled_from(list(KINDS)), st.floats(0, 1), st.integers(0, 100))
def test_text_is_read_back(kind, rate, seed):
    outliers = Outliers(kind, rate, seed=seed)
    assert Outliers.parse(str(outliers), seed) == outliers


def test_human_text_may_hold_colons_in_the_file():
    outliers = Outliers.parse("human:C:/labels/CIFAR-10_human.pt:worse_label")
    assert (outliers.file, outliers.column) == ("C:/labels/CIFAR-10_human.pt", "worse_label")
    assert str(outliers) == "human:C:/labels/CIFAR-10_human.pt:worse_label"


@pytest.mark.parametrize(
    "text", ["symmetric", "symmetric:", "symmetric:x", "symmetric:1.1", "pairflip:-0.1", "pairflip:nan"]
)
def test_rates_outside_0_to_1_are_refused(text):
    with pytest.raises(InvalidArgumentError, match="rate from 0 to 1"):
        Outliers.parse(text)


@pytest.mark.parametrize("text", ["symetric:0.1", "symetric:x"])
def test_unknown_kinds_are_refused_with_the_closest(text):
    says = r"^The kind of outliers must be one of symmetric, .*, human, got 'symetric'\. Did you mean 'symmetric'"
    for refuse in (Outliers.parse, lambda text: Outliers(text.partition(":")[0], 0.1)):
        with pytest.raises(InvalidArgumentError, match=says):
            refuse(text)


@pytest.mark.parametrize("text", ["human", "human:file", "human::worse_label", "human:file:"])
def test_human_labels_need_a_file_and_a_column(text):
    with pytest.raises(InvalidArgumentError, match="human:FILE:COLUMN"):
        Outliers.parse(text)


@pytest.mark.parametrize("kind", ["symmetric", "pairflip", "image-swap"])
def test_one_class_has_no_other_class(kind):
    alike = LabelledImages(CLEAN.images[:5], torch.zeros(5, dtype=torch.int64), 1, {})
    with pytest.raises(InvalidArgumentError, match="at least 2 classes"):
        corrupt(alike, Outliers(kind, 0.5))


def test_asymmetric_is_refused_where_it_has_no_definition():
    with pytest.raises(InvalidArgumentError, match="not defined for this data set"):
        corrupt(samples(confused_with={}), Outliers("asymmetric", 0.1))


@pytest.mark.parametrize("kind", ["symmetric", "pairflip"])
def test_of_two_classes_the_other_is_taken(kind):
    clean = samples(num_classes=2, confused_with={})
    result = corrupt(clean, Outliers(kind, 0.5))
    assert torch.equal(result.labels[result.indices], 1 - clean.labels[result.indices])
    assert len(result.indices) == len(clean.labels) // 2


def test_human_labels_are_taken_as_they_are_and_counted(tmp_path):
    labels = (CLEAN.labels + (torch.arange(2000) % 4 == 0)) % 10
    torch.save({"clean_label": CLEAN.labels.numpy(), "worse_label": labels.numpy()}, tmp_path / "human.pt")
    result = corrupt(CLEAN, Outliers.parse(f"human:{tmp_path / 'human.pt'}:worse_label"))
    assert torch.equal(result.labels, labels)
    assert result.indices.tolist() == list(range(0, 2000, 4))
    assert (result.requested, result.realised) == (None, 0.25)


def test_outliers_that_are_asked_for_have_the_kind_rate_and_seed():
    assert outliers_asked_for("none", 5) is None
    assert outliers_asked_for("symmetric:0.2", 5) == Outliers("symmetric", 0.2, seed=5)
    assert outliers_asked_for("pairflip:0.2") == Outliers("pairflip", 0.2, seed=0)


@pytest.mark.parametrize("wrong", [{}, {"rate": 0.1, "column": "c"}, {"rate": 0.1, "file": "f"}, {"column": "c"}])
def test_a_kind_takes_a_rate_and_nothing_else(wrong):
    with pytest.raises(InvalidArgumentError, match="symmetric takes a rate from 0 to 1"):
        Outliers("symmetric", **wrong)


FROZEN = {
    "symmetric": "3cba5dca8ddc68c5",
    "symmetric-inclusive": "23ed9cf5a8e10da1",
    "pairflip": "a1076418a9f126cc",
    "asymmetric": "e5e0cd1d0d0cb378",
    "image-noise": "8d9b96da8a9393c1",
    "image-swap": "a84898a7982a7383",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_outliers_that_it_always_gave(kind):
    """Else the records of runs with outliers could not be repeated."""
    result = corrupt(samples(50), Outliers(kind, 0.3, seed=7))
    content = result.labels.numpy().tobytes() + result.images.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest().startswith(FROZEN[kind])


def test_a_data_set_of_one_sample_can_be_all_outliers():
    assert corrupt(samples(1), Outliers("symmetric", 1.0)).realised == 1.0
    assert corrupt(samples(0), Outliers("symmetric", 1.0)).realised == 0.0


@pytest.mark.parametrize("kind", ["symmetric", "pairflip"])
def test_one_class_is_too_few_for_a_kind_that_is_named(kind):
    with pytest.raises(InvalidArgumentError, match=f"^{kind} outliers need at least 2 classes, got 1"):
        corrupt(samples(num_classes=1, confused_with={}), Outliers(kind, 0.5))
