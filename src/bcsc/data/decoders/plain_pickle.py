"""Read a pickle that holds plain data, and nothing but plain data.

A pickle is a program: it may name any function and have it called. Here it can name a few things, and none of them is
the real one: each is a stand-in that keeps bytes, or makes an integer array of them. Any other name is refused
before it is looked up, so nothing is imported and nothing is called. What a pickle holds is neither shown in messages
nor used as a key unless it is text or a number: a few lists within lists can stand for more than a memory can hold, and
a few tuples within tuples for more than can be hashed in a lifetime.
"""

import pickle
import struct
from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar, Literal

import numpy as np

from bcsc.data.decoders.arrays import MOST_BYTES
from bcsc.errors import BcscError, DataError

BYTE_ORDERS = ("<", ">", "|", "=")
ORDERS = ("C", "F")
KEY_TYPES = (str, bytes, int, float, bool, type(None))
INTEGER_TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")


class _IntegerType:
    """Stands in for ``numpy.dtype``."""

    def __init__(self, code: str) -> None:
        self.code, self.byte_order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.byte_order = _text(state[1])
        if self.byte_order not in BYTE_ORDERS:
            raise DataError("It holds an array in an unknown order of bytes.")


class _Array:
    """Stands in for ``numpy.ndarray`` until the pickle has told its shape, type and bytes."""

    values: np.ndarray[Any, np.dtype[Any]] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, kind, is_fortran, raw = state
        self.fill(raw, kind, shape, "F" if is_fortran else "C")

    def fill(self, raw: object, kind: object, shape: Any, order: Literal["C", "F"]) -> None:
        if not isinstance(kind, _IntegerType) or not isinstance(raw, bytes | bytearray):
            raise DataError("It holds an array of something else than plain integers.")
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise DataError("It holds an array without a shape.")
        if order not in ORDERS:
            raise DataError("It holds an array in an unknown order.")
        self.values = np.frombuffer(raw, kind.byte_order + kind.code).reshape(shape, order=order)


def _text(value: object) -> str:
    if not isinstance(value, str | bytes):
        raise DataError(f"It has a {type(value).__name__} where text belongs.")
    return value.decode("latin1") if isinstance(value, bytes) else value


class _StandIn:
    """What a pickle may call, and cannot alter."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> object:
        return self._function(*arguments)

    def __setstate__(self, _state: object) -> None:
        raise DataError("It alters what it is handed.")


def _array_class() -> None:
    raise DataError("It builds an array in an unknown way.")


def _dtype(code: object, _align: object, _copy: object) -> _IntegerType:
    if _text(code) not in INTEGER_TYPES:
        raise DataError(f"It holds an array of type {_text(code)!r:.20}; only integers are read.")
    return _IntegerType(_text(code))


def _empty_array(_class: object, _shape: object, _code: object) -> _Array:
    return _Array()


def _array_from_buffer(raw: object, kind: object, shape: object, order: Literal["C", "F"]) -> _Array:
    array = _Array()
    array.fill(raw, kind, shape, order)
    return array


def _encode(text: str, _encoding: object) -> bytes:
    return text.encode("latin1")


ALLOWED: Mapping[tuple[str, str], _StandIn] = {
    ("numpy", "ndarray"): _StandIn(_array_class),
    ("numpy", "dtype"): _StandIn(_dtype),
    ("numpy.core.multiarray", "_reconstruct"): _StandIn(_empty_array),
    ("numpy._core.multiarray", "_reconstruct"): _StandIn(_empty_array),
    ("numpy.core.numeric", "_frombuffer"): _StandIn(_array_from_buffer),  # from protocol 5 on
    ("numpy._core.numeric", "_frombuffer"): _StandIn(_array_from_buffer),
    ("_codecs", "encode"): _StandIn(_encode),  # how Python 3 writes bytes in the protocol of Python 2
}


class _UpToItsEnd:
    """A file that gives no less than it is asked for, as the unpickler would not notice, and no more than a limit."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, MOST_BYTES

    def read(self, size: int) -> bytes:
        self._take(size)
        read = self._file.read(size)
        if len(read) < size:
            raise EOFError("it ends too early")
        return read

    def readline(self) -> bytes:
        line = self._file.readline(self._left + 1)
        self._take(len(line))
        if not line.endswith(b"\n"):
            raise EOFError("it ends too early")
        return line

    def _take(self, size: int) -> None:
        """Refuse more than any file of a data set holds: a compressed one may unpack to more than the memory."""
        self._left -= size
        if self._left < 0:
            raise DataError(f"It holds more than {MOST_BYTES} bytes.")


def _checking_keys(opcode: bytes, where: slice) -> Callable[[Any], None]:
    """What an opcode does, after a look at the keys that it finds on the stack."""
    load = pickle._Unpickler.dispatch[opcode[0]]

    def load_checked(unpickler: Any) -> None:
        for key in unpickler.stack[where]:
            if type(key) not in KEY_TYPES:
                raise DataError(f"It has a {type(key).__name__} for a key.")
        load(unpickler)

    return load_checked


def _refuse_set(_unpickler: object) -> None:
    raise DataError("It holds a set, which plain data never needs.")


def _load_bytearray(unpickler: Any) -> None:
    """What there is of it, instead of the memory that it claims."""
    (size,) = struct.unpack("<Q", unpickler.read(8))
    unpickler.append(bytearray(unpickler.read(size)))


class _PlainUnpickler(pickle._Unpickler):
    """The unpickler that is written in Python: it lets keys be looked at before they are hashed."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **pickle._Unpickler.dispatch,
        pickle.DICT[0]: _checking_keys(pickle.DICT, slice(0, None, 2)),
        pickle.SETITEMS[0]: _checking_keys(pickle.SETITEMS, slice(0, None, 2)),
        pickle.SETITEM[0]: _checking_keys(pickle.SETITEM, slice(-2, -1)),
        pickle.BYTEARRAY8[0]: _load_bytearray,
        pickle.EMPTY_SET[0]: _refuse_set,
        pickle.ADDITEMS[0]: _refuse_set,
        pickle.FROZENSET[0]: _refuse_set,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            asked = f"{module}.{name}"
            raise DataError(f"It asks for {asked:.100}, which plain data never needs; nothing of it was run.")
        return ALLOWED[module, name]

    def persistent_load(self, _reference: Any) -> Any:
        raise DataError("It refers to something outside of itself; refused.")


def load_plain_dict(file: IO[bytes], where: object) -> dict[str, Any]:
    """The dictionary that the next pickle in ``file`` holds: lists, strings, numbers and integer arrays by name.

    Strings written by Python 2 come back as bytes, except the names.
    """
    held = load_plain(file, where)
    if not isinstance(held, dict):
        raise DataError(f"{where} holds a {type(held).__name__}, expected a dictionary.")
    if not all(isinstance(key, str | bytes) for key in held):
        raise DataError(f"{where} holds a dictionary with keys that are not names.")
    return {_text(key): value.values if isinstance(value, _Array) else value for key, value in held.items()}


def load_plain(file: IO[bytes], where: object) -> Any:
    """Whatever plain data the next pickle in ``file`` holds."""
    try:
        return _PlainUnpickler(_UpToItsEnd(file), encoding="bytes").load()
    except BcscError as error:
        raise DataError(f"{where} is not a file of plain data. {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way at all
        reason = str(error) or type(error).__name__
        raise DataError(f"{where} is damaged or cut short ({reason:.100}). Remove it and get it again.") from error
