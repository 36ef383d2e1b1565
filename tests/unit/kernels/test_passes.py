"""Compiled loops on any machine: no Numba, a broken one, no disk, a spoilt disk, several processes, a fork."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.kernels import passes

numba = pytest.importorskip("numba")


@given(st.lists(st.integers(0, 3 * passes.PIECE), max_size=8), st.integers(1, 5))
def test_threads_share_all_pieces_and_each_once(sizes: list[int], num_threads: int) -> None:
    pieces = passes.Pieces(sizes)
    shares = pieces.shares(num_threads)
    assert [piece for begin, end in shares for piece in range(begin, end)] == list(range(len(pieces.rows)))
    for number, size in enumerate(sizes):
        own = pieces.rows[pieces.rows[:, 0] == number]
        assert [place for _, begin, end in own for place in (begin, end)][::2] == list(range(0, size, passes.PIECE))
        assert (own[:, 2] - own[:, 1]).sum() == size
    scalars = [int((pieces.rows[begin:end, 2] - pieces.rows[begin:end, 1]).sum()) for begin, end in shares]
    assert len(shares) == (num_threads if sum(sizes) >= passes.FEWEST_TO_SHARE else 1)
    assert max(scalars) <= sum(sizes) / len(shares) + passes.PIECE


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch):
    """As in a process in which nothing was loaded or told yet."""
    monkeypatch.setattr(passes, "TOLD", [])
    passes.compiled_loops.cache_clear()
    yield monkeypatch
    passes.compiled_loops.cache_clear()


def test_without_numba_nothing_is_said(fresh) -> None:
    fresh.setitem(sys.modules, "numba", None)
    assert passes.compiled_loops() is None
    assert passes.checked(lambda loops: 1) is None


def test_a_broken_numba_is_told_of_once(fresh) -> None:
    def broken(name: str):
        raise SystemError("initialization of _internal failed\nwithout raising an exception")

    fresh.setattr(importlib, "import_module", broken)
    message = (
        r"does not work here \(SystemError: initialization of _internal failed\)\. torch's own operations are used"
    )
    with pytest.warns(RuntimeWarning, match=message) as told:
        assert [passes.compiled_loops.__wrapped__() for _ in range(2)] == [None, None]
    assert len(told) == 1


def test_a_check_that_fails_is_told_of_once(fresh) -> None:
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError") as told:
        assert [passes.checked(lambda loops: 1 // 0) for _ in range(2)] == [None, None]
    assert len(told) == 1


def doubled(numbers):
    for i in range(len(numbers)):
        numbers[i] *= 2


def doubles(kernel) -> bool:
    numbers = np.arange(3.0)
    kernel(numbers)
    return numbers.tolist() == [0, 2, 4]


def new_kernel(variant: str):
    return importlib.import_module("bcsc.kernels.loops").Kernel(doubled, variant)


@pytest.mark.parametrize("spoil", [lambda data: b"", lambda data: data[:-7], lambda data: b"x" * len(data)])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_spoilt_file_on_disk_is_compiled_anew(kind: str, spoil, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert doubles(new_kernel("spoilt"))
    (path,) = tmp_path.rglob(f"*.{kind}")
    path.write_bytes(spoil(path.read_bytes()))
    assert doubles(new_kernel("spoilt"))


def test_what_is_kept_has_a_name_for_every_variant_and_is_found_again(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for variant in ("a", "b", "a"):
        assert doubles(new_kernel(variant))
    assert len(list(tmp_path.rglob("*.nbi"))) == len(list(tmp_path.rglob("*.nbc"))) == 2


@pytest.mark.parametrize("reason", ["no folder", "no space"])
def test_where_nothing_can_be_kept_it_is_compiled_in_memory(reason: str, monkeypatch, tmp_path: Path) -> None:
    caching = importlib.import_module("numba.core.caching")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    if reason == "no folder":
        monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    else:

        def full(*_arguments: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", full)
    assert doubles(new_kernel(reason))
    assert not list(tmp_path.rglob("*.nbc"))


STEP_AND_FORK = """
import os, sys, torch
from torch import nn
import bcsc
from bcsc.optim.fast import one_pass

def step(mask):
    torch.set_num_threads(1)  # what torch itself has shared between threads does not survive a fork
    p = nn.Parameter(torch.linspace(-1, 1, 300_000))
    base = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer = bcsc.BlockCyclic(base, 2, mask=mask)
    p.grad = torch.ones_like(p)
    optimizer.step()
    torch.set_num_threads(2)
    assert one_pass.step_in_one_pass(base, optimizer.epoch_blocks(), 1, mask)
    torch.set_num_threads(1)
    print(float(p.detach().double().sum()), flush=True)

step(sys.argv[1])
child = os.fork()
if child == 0:
    step(sys.argv[1])
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_several_processes_may_compile_at_once_and_fork_after(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
    masks = ["update", "all", "update"]
    command = [sys.executable, "-c", STEP_AND_FORK]
    started = [subprocess.Popen([*command, mask], env=environment, stdout=subprocess.PIPE, text=True) for mask in masks]
    printed = [process.communicate()[0].split() for process in started]
    assert [process.returncode for process in started] == [0] * len(masks)
    assert all(len(sums) == 2 and sums[0] == sums[1] for sums in printed)
    assert printed[0] == printed[2] != printed[1]
