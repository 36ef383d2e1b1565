"""What is known of each data set before it is read: a dictionary to read and to add to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bcsc.data.decoders import cifar
from bcsc.data.decoders.arrays import Arrays, find_file
from bcsc.data.decoders.digits import decode_digits
from bcsc.data.decoders.mnist import decode_mnist
from bcsc.errors import InvalidArgumentError, check_choice


@dataclass(frozen=True)
class Download:
    """A file to fetch, and its hash. An archive is unpacked in the data folder; others go to the set's own."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def is_archive(self) -> bool:
        return self.name.endswith(".tar.gz")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Everything that is known of a data set before it is read."""

    name: str
    title: str
    folder: str  # inside the data folder, as the official archive unpacks and torchvision leaves it
    files: Mapping[str, tuple[str, ...]]  # file -> the md5 of the official one, stored as it is or compressed
    downloads: tuple[Download, ...]
    decode: Callable[[Path], Arrays]
    channels: int
    size: int
    class_names: tuple[str, ...]
    train_counts: tuple[int, ...]  # images per class
    test_counts: tuple[int, ...]
    mean: tuple[float, ...]  # per channel over all pixels of all training images, scaled to 0..1
    std: tuple[float, ...]
    augment: bool  # random crops and flips
    confused_with: Mapping[int, int]  # for asymmetric outliers; empty where the field has no definition

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def check_subset(self, num_samples: int, most: int | None = None) -> None:
        """Refuse to train on more samples than there are: in the whole set, or in the ``most`` that are left of it."""
        most = sum(self.train_counts) if most is None else most
        if not 1 <= num_samples <= most:
            raise InvalidArgumentError(
                f"subset must be from 1 to the {most} training samples of {self.title}, got {num_samples}."
            )

    def missing(self, root: Path) -> list[str]:
        """The files that are not there."""
        return [name for name in self.files if find_file(root / self.folder, name) is None]


def _next_in_superclass() -> dict[int, int]:
    """Each class of CIFAR-100 to the next of its superclass, the last to the first."""
    number = {name: index for index, name in enumerate(cifar.CIFAR100_CLASSES)}
    groups = [sorted(number[name] for name in names) for names in cifar.CIFAR100_SUPERCLASSES.values()]
    return {label: group[(i + 1) % len(group)] for group in groups for i, label in enumerate(group)}


def _idx_files(url: str, compressed: Mapping[str, str]) -> tuple[Download, ...]:
    return tuple(Download(f"{url}/{name}.gz", md5) for name, md5 in compressed.items())


# md5 of the compressed files as distributed, and of what is in them; torchvision knows the same.
_MNIST_COMPRESSED = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
_MNIST_UNPACKED = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
# https://github.com/zalandoresearch/fashion-mnist
_FASHION_COMPRESSED = {
    "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
}
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
_DIGIT_NAMES = tuple("0123456789")
_CONFUSED_DIGITS = {7: 1, 2: 7, 3: 8, 5: 6, 6: 5}
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz"

# The constants are recomputed from the real files by the tests; of Fashion-MNIST, which they lack, they are the
# ones in general use. For CIFAR-10 an often copied std is (0.2023, 0.1994, 0.2010): the mean of the deviations of
# single images, which is another thing.
_ALL = (
    Source(
        name="digits",
        title="UCI handwritten digits",
        folder="",
        files={},
        downloads=(),
        decode=lambda _folder: decode_digits(),
        channels=1,
        size=32,
        class_names=_DIGIT_NAMES,
        train_counts=(143, 146, 142, 146, 144, 145, 144, 143, 141, 143),
        test_counts=(35, 36, 35, 37, 37, 37, 37, 36, 33, 37),
        mean=(0.3054,),
        std=(0.3753,),
        augment=False,
        confused_with=_CONFUSED_DIGITS,
    ),
    Source(
        name="mnist",
        title="MNIST",
        folder="MNIST/raw",
        files={name: (md5, _MNIST_UNPACKED[name]) for name, md5 in _MNIST_COMPRESSED.items()},
        downloads=_idx_files("https://ossci-datasets.s3.amazonaws.com/mnist", _MNIST_COMPRESSED),
        decode=decode_mnist,
        channels=1,
        size=28,
        class_names=_DIGIT_NAMES,
        train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        mean=(0.1307,),
        std=(0.3081,),
        augment=False,
        confused_with=_CONFUSED_DIGITS,
    ),
    Source(
        name="fashion-mnist",
        title="Fashion-MNIST",
        folder="FashionMNIST/raw",
        files={name: (md5,) for name, md5 in _FASHION_COMPRESSED.items()},
        downloads=_idx_files(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion", _FASHION_COMPRESSED
        ),
        decode=decode_mnist,
        channels=1,
        size=28,
        class_names=(
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
        train_counts=(6000,) * 10,
        test_counts=(1000,) * 10,
        mean=(0.2860,),
        std=(0.3530,),
        augment=False,
        confused_with={},
    ),
    Source(
        name="cifar10",
        title="CIFAR-10",
        folder="cifar-10-batches-py",
        files=_CIFAR10_FILES,
        downloads=(Download(f"{_CIFAR_URL}/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),),
        decode=cifar.decode_cifar10,
        channels=3,
        size=32,
        class_names=cifar.CIFAR10_CLASSES,
        train_counts=(5000,) * 10,
        test_counts=(1000,) * 10,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        augment=True,
        # truck -> automobile, bird -> airplane, deer -> horse, cat <-> dog (Patrini et al., CVPR 2017)
        confused_with={9: 1, 2: 0, 4: 7, 3: 5, 5: 3},
    ),
    Source(
        name="cifar100",
        title="CIFAR-100",
        folder="cifar-100-python",
        files=_CIFAR100_FILES,
        downloads=(Download(f"{_CIFAR_URL}/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),),
        decode=cifar.decode_cifar100,
        channels=3,
        size=32,
        class_names=cifar.CIFAR100_CLASSES,
        train_counts=(500,) * 100,
        test_counts=(100,) * 100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        augment=True,
        confused_with=_next_in_superclass(),
    ),
)
_COARSE = replace(
    next(source for source in _ALL if source.name == "cifar100"),
    name="cifar100-coarse",
    title="CIFAR-100 under its 20 superclasses",
    decode=cifar.decode_cifar100_coarse,
    class_names=cifar.CIFAR100_COARSE_CLASSES,
    train_counts=(2500,) * 20,
    test_counts=(500,) * 20,
    confused_with={},
)
SOURCES: Mapping[str, Source] = {source.name: source for source in (*_ALL, _COARSE)}


def find_source(name: str) -> Source:
    """The source of that name."""
    return SOURCES[check_choice("The data set", name, SOURCES)]
