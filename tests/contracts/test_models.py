"""What every network must satisfy, run over the registry."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bcsc.errors import InvalidArgumentError
from bcsc.models import MODELS, ImageClassifier, build

# The first eight images and labels of data_batch_1 of CIFAR-10 (Krizhevsky, 2009).
EIGHT_IMAGES = Path(__file__).parents[1] / "fixtures" / "cifar10_eight.npz"


@pytest.fixture(scope="module", params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def evaluated(name: str) -> ImageClassifier:
    """One network for all the tests that only read it."""
    return build(name, seed=0).eval()


def random_images(num_images: int = 2, in_channels: int = 3) -> torch.Tensor:
    return torch.randn(num_images, in_channels, 32, 32, generator=torch.Generator().manual_seed(0))


def real_images() -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(EIGHT_IMAGES) as file:
        return torch.from_numpy(file["images"]) / 127.5 - 1, torch.from_numpy(file["labels"])


@pytest.mark.parametrize(("num_classes", "in_channels"), [(10, 1), (10, 3), (1, 3), (100, 1), (1000, 3)])
def test_any_number_of_classes_and_one_or_three_channels_give_one_score_per_class(name, num_classes, in_channels):
    with torch.device("meta"):
        model = build(name, num_classes, in_channels)
        assert model(torch.empty(5, in_channels, 32, 32)).shape == (5, num_classes)


def weights_without_effect(name: str, seed: int) -> set[str]:
    """Names of the weights whose gradient is zero everywhere, having checked that all parameters have a gradient."""
    model = build(name, in_channels=1, seed=seed)
    F.cross_entropy(model(random_images(4, in_channels=1)), torch.arange(4)).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
    # biases are left out: in front of a batch normalisation they have no effect
    weights = ((key, weight) for key, weight in model.named_parameters() if key.endswith("weight"))
    return {key for key, weight in weights if not weight.grad.any()}


def test_every_parameter_gets_a_finite_gradient_and_every_weight_has_an_effect(name):
    silent = weights_without_effect(name, seed=0)
    # the four ReLUs inside a squeeze-and-excitation may all be off at one draw of the weights, but not at each
    for seed in (1, 2, 3):
        silent = silent and silent & weights_without_effect(name, seed)
    assert not silent


@torch.no_grad()
def test_evaluation_is_deterministic_and_changes_no_state(evaluated):
    before = {key: value.clone() for key, value in evaluated.state_dict().items()}
    assert torch.equal(evaluated(random_images()), evaluated(random_images()))
    assert all(torch.equal(before[key], value) for key, value in evaluated.state_dict().items())


@torch.no_grad()
def test_an_image_evaluated_alone_scores_as_in_a_batch(evaluated):
    images = random_images(3)
    # close, not equal: the kernels sum in another order for another batch size
    torch.testing.assert_close(evaluated(images[:1]), evaluated(images)[:1], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_memory_layout_of_the_images_does_not_matter(evaluated):
    images = random_images()
    assert torch.equal(evaluated(images), evaluated(images.contiguous(memory_format=torch.channels_last)))


def test_parameters_lie_in_memory_in_the_plain_order(evaluated):
    assert all(parameter.is_contiguous() for parameter in evaluated.parameters())


@torch.no_grad()
def test_a_state_dict_carries_over_everything_that_decides_the_scores(name, evaluated):
    other = build(name, seed=1)
    other(random_images(4))  # moves the running statistics of the batch normalisations too
    other.eval()
    assert not torch.equal(other(random_images()), evaluated(random_images()))
    other.load_state_dict(evaluated.state_dict())
    assert torch.equal(other(random_images()), evaluated(random_images()))


@pytest.mark.parametrize("shape", [(2, 3, 28, 28), (2, 1, 32, 32), (2, 32, 32, 3), (3, 32, 32), (2, 3, 1024)])
def test_a_wrong_shape_is_refused_and_the_expected_one_named(evaluated, shape):
    with pytest.raises(InvalidArgumentError, match=r"takes images of shape \(batch, 3, 32, 32\), got \(\d") as caught:
        evaluated(torch.empty(shape))
    assert str(shape) in str(caught.value)


@torch.no_grad()
def test_an_exported_program_gives_the_same_scores_for_any_batch_size(evaluated):
    batch = torch.export.Dim("batch", min=1)
    program = torch.export.export(evaluated, (random_images(2),), dynamic_shapes=({0: batch},))
    images = random_images(3)
    torch.testing.assert_close(program.module()(images), evaluated(images), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_it_compiles_into_one_graph_with_the_same_scores(evaluated):
    torch.compiler.reset()
    compiled = torch.compile(evaluated, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(random_images()), evaluated(random_images()), rtol=1e-4, atol=1e-5)


def test_it_trains_in_bfloat16_autocast_with_weights_kept_in_float32(name):
    model = build(name, seed=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(random_images(2))
    assert scores.dtype == torch.bfloat16
    F.cross_entropy(scores.float(), torch.arange(2)).backward()
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.slow
def test_it_memorises_eight_real_images_within_forty_steps(name):
    images, labels = real_images()
    model = build(name, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(40):
        loss = F.cross_entropy(model(images), labels)
        losses.append(loss.item())
        if loss < 0.1:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[-1] < 0.1 < losses[0]


def test_equal_seeds_give_equal_weights_and_other_seeds_others(name, evaluated):
    again, other = build(name, seed=0), build(name, seed=1)
    pairs = list(zip(evaluated.parameters(), again.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(first, second) for first, second, _ in pairs)
    assert any(not torch.equal(first, third) for first, _, third in pairs)
