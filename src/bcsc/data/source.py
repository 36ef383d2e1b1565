"""What is known of a data set before it is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bcsc.data.decoders.arrays import Arrays, find_file
from bcsc.errors import InvalidArgumentError


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
    files: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # file -> md5 of the official, or compressed, one
    downloads: tuple[Download, ...] = ()
    decode: Callable[[Path], Arrays]
    channels: int
    size: int
    class_names: tuple[str, ...]
    train_counts: tuple[int, ...]  # images per class
    test_counts: tuple[int, ...]
    mean: tuple[float, ...]  # per channel over all pixels of all training images, scaled to 0..1
    std: tuple[float, ...]
    augment: bool = False  # random crops and flips
    confused_with: Mapping[int, int] = field(default_factory=dict)  # for asymmetric outliers, where these are defined

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

    def check_held_out(self, num_samples: int, total: int | None = None) -> None:
        """Refuse to hold out so many samples that none is left to train on."""
        total = sum(self.train_counts) if total is None else total
        if total < 2:
            raise InvalidArgumentError(
                f"There is nothing to hold out of {total} training sample. Take a larger subset."
            )
        if not 1 <= num_samples < total:
            raise InvalidArgumentError(
                f"validation must be from 1 to {total - 1} of the {total} training samples, got {num_samples}."
            )

    def missing(self, root: Path) -> list[str]:
        """The files that are not there."""
        return [name for name in self.files if find_file(root / self.folder, name) is None]
