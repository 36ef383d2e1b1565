import io
import os
import pickle
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.data.plain_pickle import load_plain, load_plain_dict
from bcsc.errors import DataError

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(min_size=1),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


def read(raw):
    return load_plain(io.BytesIO(raw), "the file")


@given(plain, st.integers(2, 5))
def test_plain_data_is_read_as_pickle_reads_it(value, protocol):
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i4", "<i8", ">u8"])
def test_integer_arrays_are_read_as_numpy_reads_them(protocol, dtype):
    array = np.arange(24).astype(dtype).reshape(2, 3, 4)
    held = load_plain_dict(io.BytesIO(pickle.dumps({"a": array}, protocol)), "the file")["a"]
    assert held.dtype == array.dtype
    assert np.array_equal(held, array)


@given(st.binary(max_size=200))
def test_any_bytes_are_plain_data_or_a_data_error(raw):
    with suppress(DataError):
        read(raw)


@given(st.data())
def test_a_pickle_cut_short_is_refused(data):
    whole = pickle.dumps({b"data": np.arange(300, dtype=np.uint8), b"labels": [1, 2, 3]}, 2)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DataError, match="damaged or cut short"):
        read(whole[:length])


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile_pickles(path):
    """Ways to have a folder made, from the plain one to ones hidden behind names that are allowed."""
    make = Hostile(os.mkdir, path)
    return {
        "reduce": pickle.dumps(make),
        "nested": pickle.dumps({b"data": [1, [make]]}, 2),
        "eval": pickle.dumps({b"labels": Hostile(eval, f"__import__('os').mkdir({path!r})")}, 0),
        "attribute of an allowed name": (
            b"\x80\x04\x8c\x05numpy\x8c\x15ndarray.__class__.mro\x93)R." + pickle.dumps(make, 4)  # never reached
        ),
        "replace an allowed function": (
            b"c_codecs\nencode\n(N}(V__code__\n" + pickle.dumps(make, 0)[:-1] + b"utb."  # BUILD sets attributes
        ),
    }


@pytest.mark.parametrize("way", hostile_pickles(""))
def test_a_hostile_pickle_is_refused_and_did_not_run(tmp_path, way):
    trace = tmp_path / "it-ran"
    with pytest.raises(DataError, match=r"It asks for [\w.]+, which plain data never needs; nothing of it was run"):
        read(hostile_pickles(str(trace))[way])
    assert not trace.exists()


@pytest.mark.parametrize("way", ["reduce", "nested", "eval"])
def test_those_pickles_are_hostile_indeed(tmp_path, way):
    trace = tmp_path / "it-ran"
    pickle.loads(hostile_pickles(str(trace))[way])
    assert trace.exists()


@pytest.mark.parametrize("state", [b"(N}(V__call__\nI1\nutb.", b"(N}(V__self__\nI1\nutb.", b"(N}(V__func__\nI1\nutb."])
def test_a_pickle_cannot_alter_what_it_is_handed(state):
    with pytest.raises(DataError, match="damaged"):
        read(b"c_codecs\nencode\n" + state)
    assert read(pickle.dumps(b"\xff\x00", 2)) == b"\xff\x00"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([print], dtype=object), "of type 'O8'; only integers are read|It asks for"),
        (np.zeros(2), "of type 'f8'; only integers are read"),
        (np.zeros(2, dtype=[("a", "u1")]), "of type 'V1'; only integers are read"),
        (np.asfortranarray(np.ones((2, 3), dtype=np.uint8)), "something else than plain integers"),
    ],
)
def test_other_arrays_are_refused(value, message):
    with pytest.raises(DataError, match=message):
        read(pickle.dumps(value, 2))


def test_references_to_outside_are_refused():
    with pytest.raises(DataError, match="refers to something outside of itself"):
        read(b"Psomewhere\n.")


def test_only_a_dictionary_is_a_dictionary():
    with pytest.raises(DataError, match="holds a list, expected a dictionary"):
        load_plain_dict(io.BytesIO(pickle.dumps([1])), "the file")
