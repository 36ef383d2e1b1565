"""LeNet4: its size, its dropout, and the order of its operations."""

import shutil
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bcsc.errors import InvalidArgumentError
from bcsc.models import build, count_parameters
from bcsc.models.lenet import WindowMax


@pytest.mark.parametrize("image_size", [28, 32])
@pytest.mark.parametrize("in_channels", [1, 3])
@pytest.mark.parametrize("num_classes", [10, 100])
def test_it_has_as_many_parameters_as_its_widths_say(image_size, in_channels, num_classes):
    convolutions = (in_channels * 5 * 5 + 1) * 6 + (6 * 5 * 5 + 1) * 16
    linear = (16 * 5 * 5 + 1) * 120 + (120 + 1) * num_classes
    model = build("lenet4", num_classes, in_channels, image_size=image_size)
    assert count_parameters(model) == convolutions + linear


def test_28_pixels_are_treated_as_the_same_image_padded_with_zeros_to_32():
    small, large = build("lenet4", 10, 1, image_size=28, seed=0), build("lenet4", 10, 1, image_size=32, seed=0)
    images = torch.randn(4, 1, 28, 28)
    # close, not equal: padding in the convolution may sum in another order
    torch.testing.assert_close(small(images), large(F.pad(images, (2, 2, 2, 2))))


@pytest.mark.parametrize("image_size", [0, 27, 30, 64])
def test_other_image_sizes_are_refused(image_size):
    with pytest.raises(InvalidArgumentError, match=f"image_size of 28 or 32, got {image_size}"):
        build("lenet4", image_size=image_size)


def test_a_wrong_shape_names_the_size_it_was_built_for():
    with pytest.raises(InvalidArgumentError, match=r"shape \(batch, 1, 28, 28\), got \(2, 1, 32, 32\)"):
        build("lenet4", in_channels=1, image_size=28)(torch.zeros(2, 1, 32, 32))


@pytest.mark.parametrize("dropout", [-0.1, 1.0, 2.0])
def test_a_dropout_outside_zero_to_one_is_refused(dropout):
    with pytest.raises(InvalidArgumentError, match=f"dropout must be at least 0 and below 1, got {dropout}"):
        build("lenet4", dropout=dropout)


def test_dropout_stands_in_front_of_each_fully_connected_layer():
    layers = list(build("lenet4", dropout=0.15).layers)
    in_front = [before for before, layer in pairwise(layers) if isinstance(layer, nn.Linear)]
    assert [layer.p for layer in in_front] == [0.15, 0.15]


def test_dropout_acts_in_training_only():
    model, images = build("lenet4", dropout=0.5, seed=0), torch.randn(4, 3, 32, 32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        assert not torch.equal(model(images), model(images))
    assert torch.equal(model.eval()(images), build("lenet4", seed=0).eval()(images))


def as_the_paper_draws_it(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Convolution, ReLU, pooling, with torch's own functions."""
    first, second = (layer for layer in model.layers if isinstance(layer, nn.Conv2d))
    linear = [layer for layer in model.layers if isinstance(layer, nn.Linear)]
    features = images
    for conv in (first, second):
        features = F.max_pool2d(F.relu(F.conv2d(features, conv.weight, conv.bias, padding=conv.padding)), 2)
    return linear[1](F.relu(linear[0](features.flatten(1))))


@pytest.mark.parametrize("image_size", [28, 32])
@pytest.mark.parametrize("blank_rows", [0, 24])  # in blank parts the values of a window tie
def test_it_is_the_plain_network_forward_and_backward(image_size, blank_rows):
    model = build("lenet4", image_size=image_size, seed=0).double()
    images, labels = torch.randn(16, 3, image_size, image_size, dtype=torch.float64), torch.arange(16) % 10
    images[:, :, :blank_rows] = 0.5
    scores, gradients = [], []
    for forward in (model, lambda images: as_the_paper_draws_it(model, images)):
        scores.append(forward(images))
        gradients.append(torch.autograd.grad(F.cross_entropy(scores[-1], labels), list(model.parameters())))
    torch.testing.assert_close(*scores, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


def test_the_largest_of_a_window_is_found_as_torch_finds_it_and_so_is_the_first_of_equals():
    images = torch.randint(3, (4, 5, 6, 8)).float().requires_grad_()
    windows = F.pixel_unshuffle(images, 2)
    factors = torch.randn(4, 5, 3, 4)
    found, expected = WindowMax()(windows), F.max_pool2d(images, 2)
    assert torch.equal(found, expected)
    assert torch.equal(*(torch.autograd.grad((pooled * factors).sum(), images)[0] for pooled in (found, expected)))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default backend needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inside PyTorch
def test_it_trains_compiled_by_the_default_backend():
    torch.compiler.reset()
    model, images = build("lenet4", seed=0), torch.randn(4, 3, 32, 32)
    expected = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    compiled = torch.compile(model, fullgraph=True)
    actual = torch.autograd.grad(compiled(images).square().sum(), list(model.parameters()))
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)


def test_compiled_it_still_names_the_expected_shape():
    torch.compiler.reset()
    compiled = torch.compile(build("lenet4", seed=0), backend="eager")
    compiled(torch.zeros(2, 3, 32, 32))
    with pytest.raises(InvalidArgumentError, match=r"shape \(batch, 3, 32, 32\), got \(2, 1, 28, 28\)"):
        compiled(torch.zeros(2, 1, 28, 28))
