import numpy as np
import torch

from bcsc.data.decoders.digits import decode_digits


def test_each_pixel_is_repeated_four_by_four():
    images = decode_digits().train_images
    assert torch.equal(images, images[..., ::4, ::4].repeat_interleave(4, -1).repeat_interleave(4, -2))


def test_ink_from_0_to_16_becomes_grey_from_0_to_255():
    values = decode_digits().train_images.unique().tolist()
    assert values == [round(ink * 255 / 16) for ink in range(17)]


def test_last_360_images_are_the_test_set_of_the_stored_order():
    from importlib.resources import files

    stored = np.load(str(files("bcsc.data.decoders") / "digits.npz"))["labels"]
    arrays = decode_digits()
    assert arrays.test_labels.tolist() == stored[-360:].tolist()
    assert arrays.train_labels.tolist() == stored[:-360].tolist()


def test_first_digits_count_from_zero():
    assert decode_digits().train_labels[:10].tolist() == list(range(10))
