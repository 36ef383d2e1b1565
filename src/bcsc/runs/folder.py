"""The run folder: the only place that reads and writes one. What is in it, who may write to it, and whose it is."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from bcsc.errors import BcscError, CheckpointError, DamagedRunError, StateMismatchError
from bcsc.files import WriteError, try_lock, write_whole
from bcsc.runs.record import (
    RunRecord,
    Summary,
    origin_from_text,
    rows_from_text,
    rows_to_text,
    spec_from_text,
    spec_to_text,
    summary_from_text,
    summary_to_text,
    table_to_text,
    what_contradicts,
)
from bcsc.runs.spec import RunSpec, differences
from bcsc.training.history import EpochRow

SPEC, METRICS, SUMMARY, ORIGIN, OUTLIERS = "run.toml", "metrics.jsonl", "summary.json", "origin.json", "outliers.json"
NEWEST, PREVIOUS, DAMAGED = "checkpoint.pt", "checkpoint.previous.pt", "checkpoint.damaged.pt"
LOCK = "lock"
RUN_FILES = (SPEC, METRICS, SUMMARY)  # a folder with one of them is a run's
CARRIED = (PREVIOUS, NEWEST, SPEC, METRICS, SUMMARY, ORIGIN, OUTLIERS)  # from one machine to another, in this order

LOCK_ATTEMPTS = 3  # one who only looks whether the folder is busy holds the lock for an instant
SECONDS_BETWEEN_ATTEMPTS = 0.05
ASIDE = ".aside-"  # and a number, after the name of a folder that made room for a new one
WAY_OUT = (
    "Take another folder, or --restart (in Python options=RunOptions(restart=True)) to begin anew and keep this one "
    "aside."
)

T = TypeVar("T")


class FolderBusyError(BcscError, RuntimeError):
    """Another process is training in this folder."""


@dataclass(frozen=True)
class DamagedRun:
    """A run folder that could not be read, and why."""

    folder: Path
    reason: str


class RunFolder:
    """The files of one run. Each is written whole or not at all."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        """Whether there is a run in it."""
        return any((self.path / name).exists() for name in RUN_FILES)

    def read(self) -> RunRecord:
        """The record of the run; ``DamagedRunError`` says which file is at fault."""
        metrics = ""
        rows: tuple[EpochRow, ...] = ()
        if (self.path / METRICS).exists():  # else no epoch is done
            metrics, rows = self._read(METRICS, lambda text: (text, rows_from_text(text)))
        record = RunRecord(
            folder=self.path,
            spec=self._read(SPEC, spec_from_text),
            rows=rows,
            summary=self._read(SUMMARY, summary_from_text),
            origin=self._read(ORIGIN, origin_from_text),
        )
        contradiction = what_contradicts(record, metrics)
        if contradiction is not None:
            raise DamagedRunError(f"{self.path} cannot be read: {contradiction}.")
        return record

    def origin(self) -> dict[str, Any] | None:
        """Where the run comes from, if that can be read."""
        try:
            return self._read(ORIGIN, origin_from_text)
        except DamagedRunError:
            return None

    def epochs_done(self) -> int:
        """How many epochs are written down, without a look at what they measured."""
        metrics = self.path / METRICS
        return metrics.read_bytes().count(b"\n") if metrics.exists() else 0

    def check_same_run(self, spec: RunSpec) -> None:
        """Refuse to continue another run, naming the differences."""
        if not (self.path / SPEC).exists():
            if any((self.path / name).exists() for name in (METRICS, SUMMARY, NEWEST, PREVIOUS)):
                raise StateMismatchError(f"{self.path} holds results but no {SPEC}. {WAY_OUT}")
            return
        try:
            changed = differences(self._read(SPEC, spec_from_text), spec)
        except DamagedRunError as error:
            raise StateMismatchError(f"{error} {WAY_OUT}") from error
        if changed:
            raise StateMismatchError(f"{self.path} holds another run: {'; '.join(changed)}. {WAY_OUT}")

    def write_spec(self, spec: RunSpec) -> None:
        """The configuration, in the form that ``--config`` takes."""
        self._write(SPEC, spec_to_text(spec))

    def write_rows(self, rows: Sequence[EpochRow]) -> None:
        """What every epoch measured."""
        self._write(METRICS, rows_to_text(rows))

    def write_summary(self, summary: Summary) -> None:
        """How far the run came; to be written after the rows, as it holds their checksum."""
        self._write(SUMMARY, summary_to_text(summary))

    def write_origin(self, origin: Mapping[str, Any]) -> None:
        """Where the run comes from."""
        self._write(ORIGIN, table_to_text(origin))

    def write_outliers(self, outliers: Mapping[str, Any]) -> None:
        """Which samples were corrupted."""
        self._write(OUTLIERS, table_to_text(outliers))

    def write_checkpoint(self, content: bytes | memoryview) -> None:
        """Make this the newest checkpoint; the one before it is kept."""
        write_whole(self.path / NEWEST, content, keep_as=self.path / PREVIOUS)

    def read_checkpoint(self, read: Callable[[Path], T]) -> tuple[T | None, str | None]:
        """The newest checkpoint that ``read`` can read, and a word on what was wrong with a newer one."""
        complaints = []
        for name in (NEWEST, PREVIOUS):
            if (self.path / name).exists():
                try:
                    state = read(self.path / name)
                except CheckpointError as error:
                    complaints.append(str(error))
                else:
                    return state, f"{complaints[0]} Going on from {name}." if complaints else None
        if complaints:
            raise CheckpointError(f"{' '.join(complaints)} {WAY_OUT}")
        return None, None

    def set_damaged_checkpoint_aside(self) -> None:
        """Rename the newest checkpoint, so that the next one saved does not take the place of the good one before."""
        (self.path / NEWEST).replace(self.path / DAMAGED)

    def files(self) -> dict[str, bytes]:
        """All that a run needs to go on elsewhere, and its measurements."""
        return {name: (self.path / name).read_bytes() for name in CARRIED if (self.path / name).exists()}

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """What ``files`` gave elsewhere; the checkpoint first, as the other files follow from it."""
        self.path.mkdir(parents=True, exist_ok=True)
        for name in CARRIED:
            if name in files:
                write_whole(self.path / name, files[name])

    @contextmanager
    def locked(self) -> Iterator[IO[str]]:
        """Have the folder for oneself; the system lets go of it when the process ends, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / LOCK, "a")  # noqa: SIM115 -- closed below
        except OSError as error:
            raise WriteError(f"Cannot write in {self.path}: {error.strerror}. Choose another --out.") from error
        with file:
            if not any(attempts(lambda: try_lock(file))) or not self._has_lock(file):
                raise FolderBusyError(
                    f"Another process is training in {self.path}. Wait for it, or take another folder."
                )
            yield file

    def _has_lock(self, file: IO[str]) -> bool:
        """Whether the folder's lock is still this file: another process may have set the folder aside meanwhile."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.path / LOCK))
        except FileNotFoundError:
            return False

    def is_busy(self) -> bool:
        """Whether a process is training in it now."""
        try:
            with open(self.path / LOCK) as file:
                return not try_lock(file, shared=True)
        except OSError:
            return False

    def set_aside(self) -> Path | None:
        """Rename the folder, if there is one, so that a new run can begin in its place."""
        if not self.path.exists():
            return None
        with self.locked() as lock:
            number, path = 1, self.path.resolve()
            while (aside := path.with_name(f"{path.name}{ASIDE}{number}")).exists():
                number += 1
            if sys.platform == "win32":
                lock.close()  # a folder with an open file in it cannot be renamed there
            path.rename(aside)
            self.path = path  # what led there, such as the working directory, may lead to the renamed one
        return aside

    def _read(self, name: str, parse: Callable[[str], T]) -> T:
        path = self.path / name
        try:
            return parse(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DamagedRunError(f"{path} is missing.") from error
        except RecursionError as error:
            raise DamagedRunError(f"{path} cannot be read: it is nested too deep.") from error
        except (OSError, ValueError, TypeError, OverflowError, BcscError) as error:
            raise DamagedRunError(f"{path} cannot be read: {str(error).rstrip('.')}.") from error

    def _write(self, name: str, text: str) -> None:
        write_whole(self.path / name, text.encode())


def attempts(attempt: Callable[[], bool]) -> Iterator[bool]:
    """What a few attempts give, with a pause after each that failed."""
    for _ in range(LOCK_ATTEMPTS):
        yield (success := attempt())
        if not success:
            time.sleep(SECONDS_BETWEEN_ATTEMPTS)


def read_runs(root: Path) -> tuple[list[RunRecord], list[DamagedRun]]:
    """Every run folder at or under ``root``: what could be read, and what could not."""
    records, damaged = [], []
    for folder in run_folders(root):
        try:
            records.append(RunFolder(folder).read())
        except DamagedRunError as error:
            damaged.append(DamagedRun(folder, str(error)))
    return records, damaged


def run_folders(root: Path) -> list[Path]:
    """The folders with a file of a run in them, except those that were set aside for a new one of their name."""
    found = {path.parent for name in RUN_FILES for path in root.rglob(name)}
    return sorted(folder for folder in found if ASIDE not in folder.name or original(folder) not in found)


def original(aside: Path) -> Path:
    """The folder in whose place another one was set aside."""
    return aside.with_name(aside.name.rpartition(ASIDE)[0])
