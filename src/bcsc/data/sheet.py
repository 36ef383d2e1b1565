"""A contact sheet: augmented training images with their labels, outliers marked."""

from pathlib import Path

import torch
from torch import Tensor

from bcsc.data.dataset import DataSet
from bcsc.data.feeding import training_feeder
from bcsc.errors import InvalidArgumentError, MissingExtraError
from bcsc.seeding import stream

ROWS, COLUMNS = 6, 10
ENDINGS = (".png", ".jpg", ".pdf", ".svg")


def draw_sheet(dataset: DataSet, true_labels: Tensor, path: Path, seed: int = 0) -> Tensor:
    """Draw images chosen at random, as training sees them at its first step, and return their indices.

    Red frames are outliers; where the label is what is wrong, the true one stands below it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("Contact sheets need matplotlib: pip install 'bcsc[report]'") from error
    if not path.parent.is_dir():
        raise InvalidArgumentError(f"There is no folder {path.parent} to write {path.name} to.")
    figure = Figure(figsize=(COLUMNS * 1.3, ROWS * 1.6), layout="constrained")
    if path.suffix.lower() not in ENDINGS:
        raise InvalidArgumentError(f"The sheet must end with {', '.join(ENDINGS)}, got {str(path)!r}.")
    chosen = torch.randperm(len(dataset.train_labels), generator=stream(seed, "sheet"))[: ROWS * COLUMNS]
    pixels = training_feeder(dataset, seed).pixels(chosen)
    outliers = set(dataset.corruption.indices.tolist()) if dataset.corruption else set()
    for axes, index, image in zip(figure.subplots(ROWS, COLUMNS).flat, chosen.tolist(), pixels, strict=False):
        given, true = (dataset.source.class_names[labels[index]] for labels in (dataset.train_labels, true_labels))
        is_outlier = index in outliers
        axes.imshow(image.permute(1, 2, 0).numpy(), cmap="gray", vmin=0, vmax=255)
        axes.set_title(
            given if given == true else f"{given}\n({true})", fontsize=8, color="red" if is_outlier else "black"
        )
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color="red" if is_outlier else "black", linewidth=3 if is_outlier else 0.5)
    figure.savefig(path, dpi=100)
    return chosen
