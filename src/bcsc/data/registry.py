"""The data sets by name. A new one is a file in ``decoders`` and a word here."""

from collections.abc import Mapping

from bcsc.data.decoders.cifar import CIFAR10, CIFAR100, CIFAR100_COARSE
from bcsc.data.decoders.digits import DIGITS
from bcsc.data.decoders.mnist import FASHION_MNIST, MNIST
from bcsc.data.source import Source
from bcsc.errors import check_choice

SOURCES: Mapping[str, Source] = {
    source.name: source for source in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, CIFAR100_COARSE)
}


def find_source(name: str) -> Source:
    """The source of that name."""
    return SOURCES[check_choice("The data set", name, SOURCES)]
