"""A file is whole or untouched, and a lock is held by one."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bcsc.files import WriteError, try_lock, write_whole


def test_the_old_content_gives_way_at_once_and_is_kept_if_asked(tmp_path: Path) -> None:
    path, kept = tmp_path / "file", tmp_path / "kept"
    for content in (b"one", b"two", b"three"):
        write_whole(path, content, keep_as=kept)
    assert (path.read_bytes(), kept.read_bytes()) == (b"three", b"two")
    write_whole(path, b"four")
    assert (path.read_bytes(), kept.read_bytes()) == (b"four", b"two")
    assert sorted(tmp_path.iterdir()) == [path, kept]


def test_a_full_disk_says_so_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "file", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="Cannot write .*file: No space left on device. What was there is kept"):
        write_whole(tmp_path / "file", b"new", keep_as=tmp_path / "kept")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_a_lock_is_held_by_one_until_its_file_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with open(path) as first, open(path) as second:
        assert try_lock(first)
        assert not try_lock(second)
        assert not try_lock(second, shared=True)
        first.close()
        assert try_lock(second, shared=True)


ON_WINDOWS = """
import sys, types
held = set()
def locking(descriptor, mode, length):
    if held:
        raise PermissionError(13, "Permission denied")
    held.add((mode, length))
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)
sys.modules["fcntl"] = None
sys.platform = "win32"
from bcsc.files import try_lock
with open(sys.argv[1]) as file:
    assert try_lock(file) and held == {(2, 1)}
    assert not try_lock(file) and not try_lock(file, shared=True)
"""


def test_windows_has_a_lock_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    subprocess.run([sys.executable, "-c", ON_WINDOWS, str(tmp_path / "lock")], check=True)
