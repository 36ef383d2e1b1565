"""Read a pickle that holds plain data, and nothing but plain data.

A pickle is a program: it may name any function and have it called. Here it can name five things, and none of them is
the real one: each is a stand-in that keeps bytes, or makes an integer array of them. Any other name is refused
before it is looked up, so nothing is imported and nothing is called.
"""

import pickle
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np

from bcsc.errors import BcscError, DataError

INTEGER_TYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")


class _IntegerType:
    """Stands in for ``numpy.dtype``."""

    def __init__(self, code: str) -> None:
        self.code, self.byte_order = code, "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.byte_order = _text(state[1])


class _Array:
    """Stands in for ``numpy.ndarray`` until the pickle has told its shape, type and bytes."""

    values: np.ndarray[Any, np.dtype[Any]]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, kind, is_fortran, raw = state
        if not isinstance(kind, _IntegerType) or not isinstance(raw, bytes) or is_fortran:
            raise DataError("It holds an array of something else than plain integers.")
        self.values = np.frombuffer(raw, kind.byte_order + kind.code).reshape(shape)


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


class _StandIns:
    """What a pickle may call. As bound methods, for these cannot be altered by the pickle that is handed them."""

    def array_class(self) -> None:
        raise DataError("It builds an array in an unknown way.")

    def dtype(self, code: str | bytes, _align: object, _copy: object) -> _IntegerType:
        if _text(code) not in INTEGER_TYPES:
            raise DataError(f"It holds an array of type {_text(code)!r:.20}; only integers are read.")
        return _IntegerType(_text(code))

    def empty_array(self, _class: object, _shape: object, _code: object) -> _Array:
        return _Array()

    def encode(self, text: str, _encoding: object) -> bytes:
        return text.encode("latin1")


# Not methods of the unpickler: it remembers what it made, and would stay in memory, with all the data, in a cycle.
_HAND_OUT = _StandIns()
ALLOWED: Mapping[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _HAND_OUT.array_class,
    ("numpy", "dtype"): _HAND_OUT.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _HAND_OUT.empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _HAND_OUT.empty_array,
    ("_codecs", "encode"): _HAND_OUT.encode,  # how Python 3 writes bytes in the protocol of Python 2
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise DataError(f"It asks for {module}.{name}, which plain data never needs; nothing of it was run.")
        return ALLOWED[module, name]

    def persistent_load(self, reference: Any) -> Any:
        raise DataError(f"It refers to something outside of itself ({reference!r:.60}); refused.")


def load_plain_dict(file: IO[bytes], where: object) -> dict[str, Any]:
    """The dictionary that the next pickle in ``file`` holds: lists, strings, numbers and integer arrays by name.

    Strings written by Python 2 come back as bytes, except the names.
    """
    held = load_plain(file, where)
    if not isinstance(held, dict):
        raise DataError(f"{where} holds a {type(held).__name__}, expected a dictionary.")
    return {_text(key): value.values if isinstance(value, _Array) else value for key, value in held.items()}


def load_plain(file: IO[bytes], where: object) -> Any:
    """Whatever plain data the next pickle in ``file`` holds."""
    try:
        return _PlainUnpickler(file, encoding="bytes").load()
    except BcscError as error:
        raise DataError(f"{where} is not a file of plain data. {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way at all
        raise DataError(f"{where} is damaged or cut short ({error}). Get it again.") from error
