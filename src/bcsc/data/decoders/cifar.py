"""The python files of CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), and the names they use."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bcsc.data.decoders.arrays import Arrays, check_labels, is_int64, open_file
from bcsc.data.decoders.plain_pickle import load_plain_dict
from bcsc.errors import DataError

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))

# https://www.cs.toronto.edu/~kriz/cifar.html; classes and superclasses are numbered alphabetically
CIFAR100_SUPERCLASSES: Mapping[str, tuple[str, ...]] = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
CIFAR100_COARSE_CLASSES = tuple(sorted(CIFAR100_SUPERCLASSES))
CIFAR100_CLASSES = tuple(sorted(name for names in CIFAR100_SUPERCLASSES.values() for name in names))

ROW = 3 * 32 * 32


def decode_cifar10(folder: Path) -> Arrays:
    """Five training files and one test file, in the order of their numbers."""
    test = _decode(folder, ["test_batch"], "labels", len(CIFAR10_CLASSES))
    return Arrays(*_decode(folder, CIFAR10_TRAIN_FILES, "labels", len(CIFAR10_CLASSES)), *test)


def decode_cifar100(folder: Path) -> Arrays:
    """CIFAR-100 under its 100 classes."""
    return _decode_cifar100(folder, "fine_labels", len(CIFAR100_CLASSES))


def decode_cifar100_coarse(folder: Path) -> Arrays:
    """CIFAR-100 under its 20 superclasses."""
    return _decode_cifar100(folder, "coarse_labels", len(CIFAR100_COARSE_CLASSES))


def _decode_cifar100(folder: Path, label_key: str, num_classes: int) -> Arrays:
    test = _decode(folder, ["test"], label_key, num_classes)
    return Arrays(*_decode(folder, ["train"], label_key, num_classes), *test)


def _decode(folder: Path, names: Sequence[str], label_key: str, num_classes: int) -> tuple[Tensor, Tensor]:
    """The files one after the other; one at a time is in memory beside the result."""
    pixels, labels = _read(folder, names[0], label_key)
    per_file = len(labels)
    all_pixels = torch.empty(len(names) * per_file, ROW, dtype=torch.uint8)
    all_labels = torch.empty(len(names) * per_file, dtype=torch.int64)
    for number, name in enumerate(names):
        if number:
            pixels, labels = _read(folder, name, label_key)
        if len(labels) != per_file:
            raise DataError(f"{folder / name} holds {len(labels)} images, expected {per_file} as in {names[0]}.")
        place = slice(number * per_file, (number + 1) * per_file)
        all_pixels.numpy()[place] = pixels
        all_labels[place] = check_labels(torch.tensor(labels), num_classes, str(folder / name))
        del pixels, labels
    return all_pixels.view(-1, 3, 32, 32), all_labels


def _read(folder: Path, name: str, label_key: str) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.uint8]], list[int]]:
    """One file's rows of pixels and its labels, checked for type and shape."""
    where = folder / name
    with open_file(folder, name) as file:
        held = load_plain_dict(file, where)
    pixels, labels = held.get("data"), held.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (ROW,):
        found = f"{pixels.dtype} of shape {pixels.shape}" if isinstance(pixels, np.ndarray) else "no array"
        raise DataError(f"{where}: 'data' must be uint8 of shape (images, {ROW}), found {found}.")
    if not isinstance(labels, list) or not all(map(is_int64, labels)) or len(labels) != len(pixels):
        raise DataError(f"{where}: {label_key!r} must be a list of {len(pixels)} whole numbers, one per image.")
    return pixels, labels
