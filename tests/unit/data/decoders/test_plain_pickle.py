import io
import os
import pickle
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.data.decoders.plain_pickle import load_plain, load_plain_dict
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


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["u1", "i1", "<i2", ">i4", "<i8", ">u8"])
def test_integer_arrays_are_read_as_numpy_reads_them(protocol, dtype, order):
    array = np.arange(24).astype(dtype).reshape(2, 3, 4).astype(dtype, order=order)
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
    with pytest.raises(DataError, match="It alters what it is handed"):
        read(b"c_codecs\nencode\n" + state)
    assert read(pickle.dumps(b"\xff\x00", 2)) == b"\xff\x00"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([len], dtype=object), "of type 'O8'; only integers are read|It asks for"),
        (np.zeros(2), "of type 'f8'; only integers are read"),
        (np.zeros(2, dtype=[("a", "u1")]), "of type 'V1'; only integers are read"),
    ],
)
def test_other_arrays_are_refused(value, message):
    with pytest.raises(DataError, match=message):
        read(pickle.dumps(value, 2))


def test_references_to_outside_are_refused():
    with pytest.raises(DataError, match="refers to something outside of itself"):
        read(b"Psomewhere\n.")


def lists_within_lists(depth=13):
    """A few bytes that leave a list of ten lists of ten lists ... on the stack."""
    levels = [b"]q" + bytes([n]) + b"(" + (b"h" + bytes([n - 1])) * 10 + b"e" for n in range(1, depth)]
    return b"\x80\x02]q\x00" + b"".join(levels)


@pytest.mark.parametrize(
    "end", [b"Q.", b"0cnumpy\ndtype\nh\x0cNN\x87R.", b"0cnumpy\ndtype\nX\x02\x00\x00\x00u1NN\x87R(Nh\x0ctb."]
)
def test_what_would_fill_the_memory_if_shown_is_refused_without_showing_it(end):
    with pytest.raises(DataError, match="refers to something outside|a list where text belongs"):
        read(lists_within_lists() + end)


@pytest.mark.parametrize(("start", "end"), [(b"})", b"Ns."), (b"}()", b"Nu."), (b"()", b"Nd.")])
@pytest.mark.parametrize("tuples", [b"\x85" * 300_000, b"2\x86" * 40])  # too deep, and too many, to be hashed
def test_keys_that_cannot_be_hashed_are_not_hashed(tuples, start, end):
    with pytest.raises(DataError, match="It has a tuple for a key"):
        read(start + tuples + end)


@pytest.mark.parametrize("value", [{1, 2}, frozenset([1]), [set()]])
def test_sets_are_refused(value):
    with pytest.raises(DataError, match="It holds a set, which plain data never needs"):
        read(pickle.dumps(value, 4))


def array_call(shape=b"K\x02\x85", order=b"\x8c\x01C"):
    """An array of two bytes, as protocol 5 writes it."""
    kind = b"cnumpy\ndtype\n\x8c\x02u1NN\x87R"
    return b"\x80\x05cnumpy._core.numeric\n_frombuffer\n(C\x02ab" + kind + shape + order + b"tR."


def test_shapes_and_orders_are_looked_at_before_numpy_sees_them():
    assert read(array_call()).values.tolist() == [97, 98]
    for shape in (b"}", b"G" + b"\x40" + bytes(7), b"K\x02", b"J\xff\xff\xff\xff\x85", b"cnumpy\ndtype\n"):
        with pytest.raises(DataError, match="an array without a shape"):
            read(array_call(shape=shape))
    for order in (b"\x8c\x01A", b"]", b"N"):
        with pytest.raises(DataError, match="an array in an unknown order"):
            read(array_call(order=order))


def test_long_names_are_cut():
    with pytest.raises(DataError, match="It asks for x{100}, which") as caught:
        read(b"c" + b"x" * 10**6 + b"\nname\n.")
    assert len(str(caught.value)) < 300


def test_an_unknown_order_of_bytes_is_refused():
    raw = pickle.dumps(np.zeros(2, "<i4"), 2)
    assert raw.count(b"X\x01\x00\x00\x00<") == 1
    with pytest.raises(DataError, match="unknown order of bytes"):
        read(raw.replace(b"X\x01\x00\x00\x00<", b"X\x03\x00\x00\x00f8,"))


def test_an_array_that_was_never_filled_is_no_array():
    unfilled = b"\x80\x02}X\x04\x00\x00\x00datacnumpy.core.multiarray\n_reconstruct\n(NNNtRs."
    assert load_plain_dict(io.BytesIO(unfilled), "the file") == {"data": None}


def test_keys_that_are_not_names_are_refused():
    with pytest.raises(DataError, match="the file holds a dictionary with keys that are not names"):
        load_plain_dict(io.BytesIO(pickle.dumps({"a": 1, 5: 2})), "the file")


def test_an_error_without_words_is_named():
    class Failing(io.BytesIO):
        def read(self, _size):
            raise MemoryError

    with pytest.raises(DataError, match=r"the file is damaged or cut short \(MemoryError\)"):
        load_plain(Failing(), "the file")


def test_a_promise_of_more_than_any_file_holds_is_refused_unread():
    promise = b"\x80\x04\x8e" + (2**62).to_bytes(8, "little") + b"."
    with pytest.raises(DataError, match="It holds more than 268435456 bytes"):
        load_plain(io.BytesIO(promise), "the file")


def test_bytes_that_are_promised_and_not_there_take_no_memory():
    for size in (2**62, 200_000_000):
        promise = b"\x80\x05\x96" + size.to_bytes(8, "little") + b"."
        tracemalloc.start()
        with pytest.raises(DataError, match=r"It holds more than 268435456 bytes|it ends too early"):
            load_plain(io.BytesIO(promise), "the file")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        tracemalloc.stop()
    assert read(pickle.dumps(bytearray(b"abc"), 5)) == bytearray(b"abc")


def test_only_a_dictionary_is_a_dictionary():
    with pytest.raises(DataError, match="holds a list, expected a dictionary"):
        load_plain_dict(io.BytesIO(pickle.dumps([1])), "the file")
