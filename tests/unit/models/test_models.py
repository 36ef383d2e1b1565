"""Names, sizes, options and seeds of ``build``, and what it refuses."""

import pytest
import torch

from bcsc.errors import InvalidArgumentError
from bcsc.models import MODELS, build, count_parameters

# Name: parameters with 10 and with 100 classes. Each class adds one row and one bias to the last layer.
KNOWN_COUNTS = {
    "lenet4": (52_202, 52_202 + 90 * (120 + 1)),
    "vgg19": (20_040_522, 20_086_692),
    "googlenet": (6_166_250, 6_258_500),
    "resnet18": (11_173_962, 11_220_132),
    "resnext29": (9_128_778, 9_221_028),
    "resnext29-32x4d": (4_774_218, 4_774_218 + 90 * (1024 + 1)),
    "mobilenet": (3_217_226, 3_309_476),
    "shufflenet": (887_582, 959_672),
    "senet18": (11_260_354, 11_306_524),
    "dpn92": (34_236_634, 34_467_124),
    "denseconv": (6_956_298, 7_048_548),
    "denseconv-12": (1_000_618, 1_000_618 + 90 * (384 + 1)),
}


def size_of(name: str, **options: object) -> int:
    with torch.device("meta"):
        return count_parameters(build(name, **options))


def test_every_network_of_the_registry_has_a_known_count():
    assert KNOWN_COUNTS.keys() == MODELS.keys()


@pytest.mark.parametrize("name", MODELS)
def test_parameter_counts_are_the_known_ones(name):
    assert (size_of(name), size_of(name, num_classes=100)) == KNOWN_COUNTS[name]


@pytest.mark.parametrize("name", MODELS)
def test_every_entry_cites_its_paper(name):
    assert "arXiv:" in MODELS[name].paper or "doi:" in MODELS[name].paper


@pytest.mark.parametrize(
    ("given", "closest"), [("resnet81", "'resnet18'"), ("vgg16", "'vgg19'"), ("lenet", "'lenet4'")]
)
def test_a_wrong_name_is_answered_with_the_closest_ones(given, closest):
    with pytest.raises(InvalidArgumentError, match=f"got '{given}'. Did you mean .*{closest}"):
        build(given)


@pytest.mark.parametrize("option", ["num_classes", "in_channels"])
@pytest.mark.parametrize("value", [0, -1, 2.5, True])
def test_counts_that_are_not_positive_whole_numbers_are_refused(option, value):
    with pytest.raises(InvalidArgumentError, match=f"{option} must be a whole number of at least 1, got {value}"):
        build("lenet4", **{option: value})


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"lenet4"}))
@pytest.mark.parametrize(
    ("option", "message"),
    [({"dropout": 0.1}, "has no dropout, got dropout=0.1.*lenet4"), ({"image_size": 28}, "takes 32 x 32 .*lenet4")],
)
def test_all_but_lenet4_refuse_dropout_and_other_image_sizes(name, option, message):
    with pytest.raises(InvalidArgumentError, match=f"{name} {message}"):
        build(name, **option)


def test_a_seed_leaves_the_global_generator_as_it_was():
    before = torch.get_rng_state()
    build("lenet4", seed=7)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_decides_the_weights_whatever_the_global_generator():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first = build("lenet4", seed=7).state_dict()
        torch.manual_seed(2)
        second = build("lenet4", seed=7).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_without_a_seed_the_weights_come_from_the_global_generator():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        first, second = build("lenet4"), build("lenet4")
        torch.manual_seed(1)
        again = build("lenet4")
    assert torch.equal(first.layers[0].weight, again.layers[0].weight)
    assert not torch.equal(first.layers[0].weight, second.layers[0].weight)
