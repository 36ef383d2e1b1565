"""The networks of the paper."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from bcsc.errors import InvalidArgumentError, check_at_least, check_choice
from bcsc.models.cost import count_multiply_adds, count_parameters
from bcsc.models.densenet import denseconv
from bcsc.models.dpn import dpn92
from bcsc.models.googlenet import googlenet
from bcsc.models.layers import ImageClassifier
from bcsc.models.lenet import lenet4
from bcsc.models.mobilenet import mobilenet
from bcsc.models.resnet import resnet18
from bcsc.models.resnext import resnext29
from bcsc.models.senet import senet18
from bcsc.models.shufflenet import shufflenet
from bcsc.models.vgg import vgg19
from bcsc.seeding import stream_key

__all__ = ["MODELS", "ImageClassifier", "Model", "build", "count_multiply_adds", "count_parameters"]


RESNEXT_PAPER = "Xie et al. 2017, Aggregated residual transformations for deep neural networks, arXiv:1611.05431"
DENSENET_PAPER = "Huang et al. 2017, Densely connected convolutional networks, arXiv:1608.06993"


@dataclass(frozen=True)
class Model:
    """How a network is built, and where it comes from."""

    builder: Callable[..., ImageClassifier]
    paper: str
    has_options: bool = False  # whether it takes image_size and dropout


MODELS: Mapping[str, Model] = {
    "lenet4": Model(
        lenet4,
        "LeCun et al. 1998, Gradient-based learning applied to document recognition, doi:10.1109/5.726791",
        has_options=True,
    ),
    "vgg19": Model(
        vgg19,
        "Simonyan and Zisserman 2015, Very deep convolutional networks for large-scale image recognition, "
        "arXiv:1409.1556",
    ),
    "googlenet": Model(googlenet, "Szegedy et al. 2015, Going deeper with convolutions, arXiv:1409.4842"),
    "resnet18": Model(resnet18, "He et al. 2016, Deep residual learning for image recognition, arXiv:1512.03385"),
    "resnext29": Model(partial(resnext29, cardinality=2), RESNEXT_PAPER),
    "resnext29-32x4d": Model(partial(resnext29, cardinality=32), RESNEXT_PAPER),
    "mobilenet": Model(
        mobilenet,
        "Howard et al. 2017, MobileNets: efficient convolutional neural networks for mobile vision applications, "
        "arXiv:1704.04861",
    ),
    "shufflenet": Model(
        shufflenet,
        "Zhang et al. 2018, ShuffleNet: an extremely efficient convolutional neural network for mobile devices, "
        "arXiv:1707.01083",
    ),
    "senet18": Model(senet18, "Hu et al. 2018, Squeeze-and-excitation networks, arXiv:1709.01507"),
    "dpn92": Model(dpn92, "Chen et al. 2017, Dual path networks, arXiv:1707.01629"),
    "denseconv": Model(partial(denseconv, growth=32), DENSENET_PAPER),
    "denseconv-12": Model(partial(denseconv, growth=12), DENSENET_PAPER),
}


def build(
    name: str,
    num_classes: int = 10,
    in_channels: int = 3,
    *,
    image_size: int = 32,
    dropout: float = 0.0,
    seed: int | None = None,
) -> ImageClassifier:
    """The network called ``name`` with fresh weights, as PyTorch initialises them.

    Args:
        image_size: height and width of the images; 32, or for lenet4 also 28.
        dropout: the share of units dropped in front of each fully connected layer; lenet4 only.
        seed: draws the weights from a stream of their own and leaves the global generator as it was; without it they
            come from the global generator.
    """
    model = MODELS[check_choice("The network's name", name, MODELS)]
    check_at_least("num_classes", num_classes, 1)
    check_at_least("in_channels", in_channels, 1)
    if not model.has_options and image_size != 32:
        raise InvalidArgumentError(
            f"{name} takes 32 x 32 images, got image_size={image_size!r}. Pad the images to 32 x 32, or build lenet4."
        )
    if not model.has_options and dropout != 0:
        raise InvalidArgumentError(f"{name} has no dropout, got dropout={dropout!r}. Leave it at 0, or build lenet4.")
    options = {"image_size": image_size, "dropout": dropout} if model.has_options else {}
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.default_generator.manual_seed(stream_key(seed, "weights"))
        return model.builder(num_classes, in_channels, **options)
