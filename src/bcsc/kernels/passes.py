"""Call the compiled loops, if there are any and they can be trusted, on as many threads as torch has.

A loop is used after a check in this process: it must give, on a few hundred numbers of all kinds, the bits that torch
gives. Where Numba is missing, or cannot compile, or rounds otherwise, there is no loop, and torch's operations stay.
"""

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import pairwise
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

T = TypeVar("T")
PIECE = 2**16  # scalars; a multiple of the width of every register
FEWEST_TO_SHARE = 2**17  # scalars: below, waking a thread takes longer than the work
TOLD: list[Exception] = []  # the failure that was warned of


@cache
def compiled_loops() -> ModuleType | None:
    """The module of the loops, if Numba is installed and can be imported."""
    try:
        importlib.import_module("numba")
        return importlib.import_module("bcsc.kernels.loops")
    except ModuleNotFoundError:
        return None
    except Exception as error:  # not for this version of numpy, or broken
        warn_once(error)
        return None


def checked(check: Callable[[Any], T | None]) -> T | None:
    """What a check of the loops says; None if there are none, or if they fail in any way."""
    loops = compiled_loops()
    if loops is None:
        return None
    try:
        with warnings.catch_warnings(), torch.device("cpu"):
            warnings.simplefilter("ignore")
            return check(loops)
    except Exception as error:
        warn_once(error)
        return None


def warn_once(error: Exception) -> None:
    """Tell of the first failure in this process."""
    if not TOLD:
        TOLD.append(error)
        first_line = (str(error).splitlines() or [""])[0]
        warnings.warn(
            f"Numba is installed but does not work here ({type(error).__name__}: {first_line}). "
            "torch's own operations are used: the same numbers, more slowly.",
            RuntimeWarning,
            stacklevel=2,
        )


class Pieces:
    """Tensors cut into pieces that fit into a cache, to be shared by threads.

    Attributes:
        rows: of each piece the number of its tensor, where it begins and where it ends.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        rows = [(t, start, min(start + PIECE, n)) for t, n in enumerate(sizes) for start in range(0, n, PIECE)]
        self.rows = np.array(rows, dtype=np.int64).reshape(-1, 3)
        self._ends = np.cumsum(self.rows[:, 2] - self.rows[:, 1])
        self._shares: dict[int, list[tuple[int, int]]] = {}

    def shares(self, num_threads: int) -> list[tuple[int, int]]:
        """The first piece and the end of what each thread does, all with about as many scalars."""
        if num_threads not in self._shares:
            num_scalars = int(self._ends[-1]) if len(self._ends) else 0
            parts = 1 if num_scalars < FEWEST_TO_SHARE else num_threads
            cuts = np.searchsorted(self._ends, [num_scalars * i // parts for i in range(1, parts)])
            self._shares[num_threads] = list(pairwise([0, *map(int, cuts), len(self.rows)]))
        return self._shares[num_threads]


def run_shared(kernel: Callable[..., Any], addresses: Any, pieces: Pieces, arguments: tuple[Any, ...]) -> None:
    """Let a loop go over all pieces, on as many threads as torch has if there is enough to do."""
    shares = pieces.shares(num_threads := torch.get_num_threads())
    tasks = [
        pool(os.getpid(), num_threads).submit(kernel, addresses, pieces.rows, *share, *arguments)
        for share in shares[1:]
    ]
    kernel(addresses, pieces.rows, *shares[0], *arguments)
    for task in tasks:
        task.result()


@lru_cache(maxsize=1)
def pool(process: int, num_threads: int) -> ThreadPoolExecutor:
    """Threads for all shares but one; a forked process has none of its parent's."""
    return ThreadPoolExecutor(num_threads - 1, "bcsc-kernels")


def same_numbers(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bits, where neither is NaN; arithmetic may give either NaN."""
    nan = one.isnan()
    both = torch.equal(nan, other.isnan())
    return both and torch.equal(
        torch.where(nan, 0, one).view(torch.uint8), torch.where(nan, 0, other).view(torch.uint8)
    )
