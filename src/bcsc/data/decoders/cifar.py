"""The python files of CIFAR-10 and CIFAR-100 (Krizhevsky, 2009), and the names they use."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bcsc.data.decoders.arrays import Arrays, check_labels, is_int64, open_file
from bcsc.data.decoders.plain_pickle import load_plain_dict
from bcsc.data.source import Download, Source
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


def _next_in_superclass() -> dict[int, int]:
    """Each class of CIFAR-100 to the next of its superclass, the last to the first."""
    number = {name: index for index, name in enumerate(CIFAR100_CLASSES)}
    groups = [sorted(number[name] for name in names) for names in CIFAR100_SUPERCLASSES.values()]
    return {label: group[(i + 1) % len(group)] for group in groups for i, label in enumerate(group)}


# The files inside the archives of https://www.cs.toronto.edu/~kriz/cifar.html, as torchvision knows them.
_CIFAR10_FILES = {
    "data_batch_1": ("c99cafc152244af753f735de768cd75f",),
    "data_batch_2": ("d4bba439e000b95fd0a9bffe97cbabec",),
    "data_batch_3": ("54ebc095f3ab1f0389bbae665268c751",),
    "data_batch_4": ("634d18415352ddfa80567beed471001a",),
    "data_batch_5": ("482c414d41f54cd18b22e5b47cb7c3cb",),
    "test_batch": ("40351d587109b95175f43aff81a1287e",),
}
_CIFAR100_FILES = {
    "train": ("16019d7e3df5f24257cddd939b257f8d",),
    "test": ("f0ef6b0ae62326f3e7ffdfab6717acfc",),
}
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz"

# The tests recompute mean and std from the real files. An often copied std of CIFAR-10 is (0.2023, 0.1994, 0.2010): the
# mean of the deviations of single images, which is another thing.
CIFAR10 = Source(
    name="cifar10",
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    files=_CIFAR10_FILES,
    downloads=(Download(f"{_CIFAR_URL}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
    decode=decode_cifar10,
    channels=3,
    size=32,
    class_names=CIFAR10_CLASSES,
    train_counts=(5000,) * 10,
    test_counts=(1000,) * 10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    augment=True,
    # truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog (Patrini et al., CVPR 2017)
    confused_with={9: 1, 2: 0, 4: 7, 3: 5, 5: 3},
)
CIFAR100 = Source(
    name="cifar100",
    title="CIFAR-100",
    folder="cifar-100-python",
    files=_CIFAR100_FILES,
    downloads=(Download(f"{_CIFAR_URL}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
    decode=decode_cifar100,
    channels=3,
    size=32,
    class_names=CIFAR100_CLASSES,
    train_counts=(500,) * 100,
    test_counts=(100,) * 100,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    augment=True,
    confused_with=_next_in_superclass(),
)
CIFAR100_COARSE = replace(
    CIFAR100,
    name="cifar100-coarse",
    title="CIFAR-100 under its 20 superclasses",
    decode=decode_cifar100_coarse,
    class_names=CIFAR100_COARSE_CLASSES,
    train_counts=(2500,) * 20,
    test_counts=(500,) * 20,
    confused_with={},
)
