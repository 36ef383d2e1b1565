"""Values that no file of bcsc should hold, and where to put them."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st

# In the suite some hundred cases of each kind, always the same; `make fuzz` tries thousands of new ones.
MANY = settings(max_examples=3 * settings.default.max_examples)
FEW = settings(max_examples=settings.default.max_examples // 2)  # of those that train, or write a report
DEEP = 100_000

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(10**30, 10**40) | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=5,
)
NONSENSE = st.sampled_from(
    [b"[" * DEEP, b'{"a":' * DEEP, b"9" * 5000, b"a = " + b"[" * DEEP, b"a = " + b"9" * 5000, b"\xff\xfe", b"", b"\0"]
)
PLAIN = (None, True, 0, -1, 1, 10**9, 10**5000, 0.5, float("nan"), float("inf"), "", "text", b"bytes", [], {}, (), [[]])
TENSORS = (
    *(torch.zeros(()), torch.zeros(0), torch.ones(3), torch.ones(5, 4), torch.ones(100, 1000)),
    *(torch.ones(5, 4, dtype=torch.float64), torch.ones(5, dtype=torch.int8), torch.zeros(()).expand(5, 4)),
    *(torch.full((5, 4), float("nan"), dtype=torch.float64), torch.ones(5, 4, dtype=torch.complex64)),
)
VALUES = st.sampled_from([*PLAIN, *TENSORS])

Path = tuple[Any, ...]


def places(value: Any, before: Path = ()) -> Iterator[Path]:
    """The keys and numbers that lead to everything in nested tables and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*before, key)
        yield from places(item, (*before, key))


def changed(state: Any, place: Path, value: Any, *, gone: bool = False) -> Any:
    """A copy with another value at a place, or with nothing there."""
    state = copy.deepcopy(state)
    table = state
    for key in place[:-1]:
        table = table[key]
    if gone:
        del table[place[-1]]
    else:
        table[place[-1]] = value
    return state
