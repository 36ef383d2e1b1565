"""The embedded data set: 1,797 real handwritten digits, for demonstrations and tests without a download.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository (1998),
https://doi.org/10.24432/C50P49, licence CC BY 4.0. ``digits.npz`` holds its test part unchanged: 8 x 8 images with
values 0 to 16 (how many of the 16 pixels below each were ink), and labels.

The last 360 images are the test set, always. Images are served 32 x 32 by repeating each pixel 4 x 4 times,
with the ink scaled to 0..255.
"""

from importlib.resources import files

import numpy as np
import torch

from bcsc.data.decoders.arrays import Arrays
from bcsc.data.decoders.mnist import CONFUSED_DIGITS, DIGIT_NAMES
from bcsc.data.source import Source

NUM_TEST = 360
ENLARGEMENT = 4
MOST_INK = 16


def decode_digits() -> Arrays:
    """The digits as 1 x 32 x 32 images, split into training and test."""
    with (files("bcsc.data.decoders") / "digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as stored:
        ink, labels = stored["images"], torch.from_numpy(stored["labels"].astype(np.int64))
    grey = np.round(ink * (255 / MOST_INK)).astype(np.uint8)
    large = grey.repeat(ENLARGEMENT, axis=1).repeat(ENLARGEMENT, axis=2)
    images = torch.from_numpy(large).unsqueeze(1)
    return Arrays(images[:-NUM_TEST], labels[:-NUM_TEST], images[-NUM_TEST:], labels[-NUM_TEST:])


DIGITS = Source(
    name="digits",
    title="UCI handwritten digits",
    folder="",
    decode=lambda _folder: decode_digits(),
    channels=1,
    size=32,
    class_names=DIGIT_NAMES,
    train_counts=(143, 146, 142, 146, 144, 145, 144, 143, 141, 143),
    test_counts=(35, 36, 35, 37, 37, 37, 37, 36, 33, 37),
    mean=(0.3054,),
    std=(0.3753,),
    confused_with=CONFUSED_DIGITS,
)
