import os
import pickle
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.data.outliers import LabelledImages, Outliers, corrupt
from bcsc.errors import BcscError, DataError, InvalidArgumentError

CLEAN = np.arange(50) % 10
WORSE = np.where(np.arange(50) % 5 == 0, (CLEAN + 3) % 10, CLEAN)
SAMPLES = LabelledImages(torch.zeros(50, 1, 2, 2, dtype=torch.uint8), torch.from_numpy(CLEAN), 10, {})


def human(path, column="worse_label"):
    return corrupt(SAMPLES, Outliers.parse(f"human:{path}:{column}"))


def save(path, columns, zipped=True):
    torch.save(columns, path, _use_new_zipfile_serialization=zipped)
    return path


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_the_chosen_column_becomes_the_labels(tmp_path, zipped, dtype):
    columns = {
        "clean_label": CLEAN.astype(dtype),
        "worse_label": WORSE.astype(dtype),
        "aggre_label": CLEAN.astype(dtype),
    }
    result = human(save(tmp_path / "human.pt", columns, zipped))
    assert result.labels.tolist() == WORSE.tolist()
    assert result.indices.tolist() == list(range(0, 50, 5))
    assert result.requested is None
    assert result.realised == 0.2
    assert len(human(tmp_path / "human.pt", "aggre_label").indices) == 0


@pytest.mark.parametrize("kind", [list, np.asarray])
@pytest.mark.parametrize("zipped", [True, False])
def test_coarse_columns_are_compared_with_the_coarse_clean_one(tmp_path, kind, zipped):
    """CIFAR-100N holds its fine labels in arrays and its coarse ones in lists."""
    coarse = {"clean_coarse_label": kind(CLEAN.tolist()), "noisy_coarse_label": kind(WORSE.tolist())}
    columns = {"clean_label": CLEAN + 40, "noisy_label": CLEAN + 41, **coarse}
    path = save(tmp_path / "human.pt", columns, zipped)
    assert human(path, "noisy_coarse_label").labels.tolist() == WORSE.tolist()
    with pytest.raises(
        DataError, match="'clean_label' .*Coarse columns go with cifar100-coarse, fine ones with cifar1"
    ):
        human(path, "noisy_label")


def test_a_file_for_another_order_is_refused(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN[::-1].copy(), "worse_label": WORSE})
    with pytest.raises(DataError, match=r"'clean_label' .* is not equal to the training labels.*order of this one\.$"):
        human(path)


def test_a_column_of_another_length_is_refused(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE[:-1].copy()})
    with pytest.raises(DataError, match="'worse_label' has 49 labels, expected 50"):
        human(path)


def test_an_unknown_column_is_refused_with_the_known_ones(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE})
    with pytest.raises(InvalidArgumentError, match="must be one of clean_label, worse_label, got 'worst_label'"):
        human(path, "worst_label")


def test_a_file_without_the_clean_column_is_refused(tmp_path):
    path = save(tmp_path / "human.pt", {"worse_label": WORSE})
    with pytest.raises(DataError, match="has no column 'clean_label' that could be compared"):
        human(path)


def test_labels_that_are_no_class_are_refused(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE + 1})
    with pytest.raises(DataError, match=r"label 10 at position .* is not one of the 10 classes"):
        human(path)


@pytest.mark.parametrize("column", [[0.5] * 50, [True] * 50, [2**63] * 50, "text", CLEAN.reshape(5, 10).copy()])
def test_columns_that_are_not_arrays_of_integers_are_refused(tmp_path, column):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": column})
    with pytest.raises(DataError, match="'worse_label' must be whole numbers in one dimension, in an array or a list"):
        human(path)


def test_floats_are_refused(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE.astype(np.float32)})
    with pytest.raises(DataError, match="only integers are read"):
        human(path)


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_torch_file_is_refused_and_did_not_run(tmp_path, zipped):
    trace = tmp_path / "it-ran"
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": Hostile(trace)}, zipped)
    with pytest.raises(DataError, match=r"It asks for \w+\.mkdir"):
        human(path)
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()  # the file was hostile indeed


def test_tensors_are_refused_without_reading_their_storage(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": torch.zeros(3), "worse_label": torch.zeros(3)})
    with pytest.raises(DataError, match=r"It asks for torch\._utils\._rebuild_tensor_v2"):
        human(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="There is no file"):
        human(tmp_path / "absent.pt")
    (tmp_path / "text.pt").write_text("clean_label")
    with pytest.raises(DataError, match="damaged or cut short"):
        human(tmp_path / "text.pt")
    (tmp_path / "list.pt").write_bytes(pickle.dumps(1) * 3 + pickle.dumps([1]))
    with pytest.raises(DataError, match="holds a list, expected a dictionary"):
        human(tmp_path / "list.pt")
    np.savez(tmp_path / "arrays.npz", clean_label=CLEAN)
    with pytest.raises(DataError, match=r"is a zip file, but not one that torch\.save wrote"):
        human(tmp_path / "arrays.npz")


def test_a_truncated_file_is_refused(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE}, zipped=False)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="damaged or cut short"):
        human(path)


def test_a_damaged_zip_file_is_refused(tmp_path):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE})
    whole = path.read_bytes()
    start = whole.rindex(b"PK\x01\x02")  # of an entry in the directory at the end
    path.write_bytes(whole[:start] + b"XXXX" + whole[start + 4 :])
    with pytest.raises(DataError, match="is a damaged zip file"):
        human(path)


@given(st.data())
def test_a_zip_file_with_any_other_bytes_is_read_or_refused(tmp_path_factory, data):
    path = save(tmp_path_factory.getbasetemp() / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE})
    raw = bytearray(path.read_bytes())
    directory = raw.index(b"PK\x01\x02")
    for place in data.draw(st.lists(st.integers(directory, len(raw) - 1), min_size=1, max_size=3)):
        raw[place] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    with suppress(BcscError):
        assert human(path).labels.tolist() == WORSE.tolist()


@pytest.mark.parametrize(("offset", "value", "message"), [(8, 1, "encrypted"), (10, 99, "compression")])
def test_a_zip_file_packed_otherwise_is_refused(tmp_path, offset, value, message):
    path = save(tmp_path / "human.pt", {"clean_label": CLEAN, "worse_label": WORSE})
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PK\x01\x02") + offset] = value  # in the directory
    raw[raw.index(b"PK\x03\x04") + offset - 2] = value  # before the file itself
    path.write_bytes(raw)
    with pytest.raises(DataError, match=f"is a damaged zip file .*{message}"):
        human(path)


def test_a_file_without_columns_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"human\.pt has no columns\. Give the CIFAR-N file"):
        human(save(tmp_path / "human.pt", {}))
