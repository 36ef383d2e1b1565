"""CIFAR and MNIST files made up at a small size: read rightly, or refused with the reason."""

import gzip
import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
import torch

from bcsc.data.dataset import load
from bcsc.data.decoders import plain_pickle
from bcsc.data.decoders.cifar import decode_cifar10, decode_cifar100, decode_cifar100_coarse
from bcsc.data.decoders.mnist import decode_mnist
from bcsc.errors import DataError, InvalidArgumentError

ROWS = 4
CIFAR10_FILES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def pixels(seed):
    return np.random.default_rng(seed).integers(0, 256, (ROWS, 3072), dtype=np.uint8)


def write(path, **record):
    path.write_bytes(pickle.dumps({key.encode(): value for key, value in record.items()}, 2))


@pytest.fixture
def cifar10(tmp_path):
    for number, name in enumerate(CIFAR10_FILES):
        write(tmp_path / name, data=pixels(number), labels=[number] * ROWS, filenames=[b"a.png"] * ROWS)
    return tmp_path


def test_cifar10_is_its_five_files_in_order_and_the_test_file(cifar10):
    arrays = decode_cifar10(cifar10)
    expected = np.concatenate([pixels(number) for number in range(5)]).reshape(-1, 3, 32, 32)
    assert np.array_equal(arrays.train_images.numpy(), expected)
    assert arrays.train_labels.tolist() == [number for number in range(5) for _ in range(ROWS)]
    assert np.array_equal(arrays.test_images.numpy(), pixels(5).reshape(-1, 3, 32, 32))
    assert arrays.test_labels.tolist() == [5] * ROWS


def python2_pickle(rows, labels):
    """Opcode by opcode what Python 2 and its numpy wrote, as in the official files: strings are not unicode."""
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"M" + struct.pack("<H", len(rows)) + b"M" + struct.pack("<H", 3072) + b"\x86"
    state = b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<I", rows.nbytes) + rows.tobytes() + b"tb"
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(U\x04data" + array + state + b"U\x06labels" + listed + b"u."


def test_files_written_by_python_2_are_read(cifar10):
    for number, name in enumerate(CIFAR10_FILES):
        (cifar10 / name).write_bytes(python2_pickle(pixels(number), [number] * ROWS))
    test_cifar10_is_its_five_files_in_order_and_the_test_file(cifar10)


def test_cifar100_has_two_sets_of_labels(tmp_path):
    for number, name in enumerate(["train", "test"]):
        write(tmp_path / name, data=pixels(number), fine_labels=[99, 1, 2, 3], coarse_labels=[19, 0, 0, 1])
    assert decode_cifar100(tmp_path).train_labels.tolist() == [99, 1, 2, 3]
    assert decode_cifar100_coarse(tmp_path).test_labels.tolist() == [19, 0, 0, 1]


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_hostile_cifar_file_is_refused_and_did_not_run(cifar10):
    trace = cifar10 / "it-ran"
    write(cifar10 / "data_batch_3", data=pixels(0), labels=Hostile(trace))
    with pytest.raises(DataError, match=r"data_batch_3 is not a file of plain data\. It asks for \w+\.mkdir"):
        decode_cifar10(cifar10)
    assert not trace.exists()


def test_a_truncated_cifar_file_is_refused(cifar10):
    path = cifar10 / "data_batch_2"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError, match="data_batch_2 is damaged or cut short"):
        decode_cifar10(cifar10)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"data": pixels(0)[:, :3000].copy(), "labels": [0] * ROWS}, r"found uint8 of shape \(4, 3000\)"),
        ({"data": pixels(0).astype(np.int64), "labels": [0] * ROWS}, "found int64 of shape"),
        ({"labels": [0] * ROWS}, "found no array"),
        ({"data": pixels(0)}, "'labels' must be a list of 4 whole numbers"),
        ({"data": pixels(0), "labels": [0] * (ROWS - 1)}, "'labels' must be a list of 4 whole numbers"),
        ({"data": pixels(0), "labels": ["0"] * ROWS}, "'labels' must be a list of 4 whole numbers"),
        ({"data": pixels(0), "labels": [0, 2**70, 1, 2]}, "'labels' must be a list of 4 whole numbers"),
        ({"data": pixels(0), "labels": [0, 1, 10, 2]}, "label 10 at position 2 is not one of the 10 classes"),
        ({"data": pixels(0), "labels": [0, -1, 1, 2]}, "label -1 at position 1 is not one of the 10 classes"),
        ({"data": pixels(0)[:2].copy(), "labels": [0, 1]}, "holds 2 images, expected 4 as in data_batch_1"),
    ],
)
def test_wrong_shapes_and_labels_are_refused(cifar10, record, message):
    write(cifar10 / "data_batch_4", **record)
    with pytest.raises(DataError, match=f"data_batch_4.*{message}"):
        decode_cifar10(cifar10)


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
LABELS = np.array([5, 0, 4, 1, 9], dtype=np.uint8)


@pytest.fixture(params=["plain", "compressed"])
def mnist(tmp_path, request):
    for part in ("train", "t10k"):
        for name, array in ((f"{part}-images-idx3-ubyte", IMAGES), (f"{part}-labels-idx1-ubyte", LABELS)):
            if request.param == "plain":
                (tmp_path / name).write_bytes(idx(array))
            else:
                (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return tmp_path


def test_mnist_is_read_compressed_or_not(mnist):
    arrays = decode_mnist(mnist)
    assert np.array_equal(arrays.train_images.numpy(), IMAGES[:, None])
    assert arrays.test_labels.tolist() == LABELS.tolist()
    assert arrays.test_labels.dtype == torch.int64


def test_truncated_mnist_files_are_refused(mnist):
    path = next(mnist.glob("train-images*"))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte(\.gz)? (promises|is damaged or cut short)"):
        decode_mnist(mnist)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", idx(LABELS), "is not an IDX file of bytes in 3 dimensions"),
        ("train-images-idx3-ubyte", b"\x00\x00\x08\x03", "is not an IDX file"),
        ("train-images-idx3-ubyte", idx(IMAGES) + b"x", r"promises \[5, 28, 28\] = 3920 bytes and holds more"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03" + b"\xff" * 8 + bytes(4), "expected from 1 to 268435456 in all"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03" + b"\0\0\xff\xff" * 3, "expected from 1 to 268435456 in all"),
        ("train-images-idx3-ubyte", idx(IMAGES)[:-1], r"promises \[5, 28, 28\] = 3920 bytes and holds 3919"),
        ("train-labels-idx1-ubyte", idx(LABELS[:4]), "5 train images, but 4 train labels"),
        ("t10k-labels-idx1-ubyte", idx(LABELS + 1), "label 10 at position 4"),
    ],
)
def test_wrong_mnist_files_are_refused(mnist, name, content, message):
    (mnist / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        decode_mnist(mnist)


def test_damaged_compression_is_refused(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES))[:100] + b"garbage" * 200)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz is damaged or cut short"):
        decode_mnist(tmp_path)


def peak_memory_of(call):
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_compressed_file_is_unpacked_up_to_what_it_promises(mnist):
    for old in mnist.glob("train-images*"):
        old.unlink()
    bomb = idx(IMAGES) + bytes(2**26)
    (mnist / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(bomb))

    def read():
        with pytest.raises(DataError, match="3920 bytes and holds more"):
            decode_mnist(mnist)

    assert peak_memory_of(read) < 2**22


@pytest.mark.parametrize("content", [pickle.dumps({b"data": bytes(2**26)}, 4), b"I" + b"1" * 2**26])
def test_a_compressed_pickle_is_unpacked_up_to_a_limit(tmp_path, monkeypatch, content):
    monkeypatch.setattr(plain_pickle, "MOST_BYTES", 2**20)
    (tmp_path / "test_batch.gz").write_bytes(gzip.compress(content))

    def read():
        with pytest.raises(DataError, match="test_batch is not a file of plain data. It holds more than 1048576 bytes"):
            decode_cifar10(tmp_path)

    assert peak_memory_of(read) < 2**22


def test_a_set_of_another_size_is_refused(cifar10):
    root = cifar10 / "root"
    root.mkdir()
    (root / "cifar-10-batches-py").symlink_to(cifar10)
    with pytest.raises(DataError, match=r"shape \(20, 3, 32, 32\), those of CIFAR-10 have \(50000, 3, 32, 32\)"):
        load("cifar10", root)


def test_an_unknown_data_set_is_refused_with_the_closest():
    with pytest.raises(InvalidArgumentError, match=r"got 'cifar-10'\. Did you mean 'cifar10'"):
        load("cifar-10")
