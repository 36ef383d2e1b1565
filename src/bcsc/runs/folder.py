"""The run folder: what is in it, who may write to it, and when it is another run's."""

import fcntl
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from bcsc.errors import BcscError, StateMismatchError
from bcsc.files import WriteError, write_whole
from bcsc.runs.spec import RunSpec, differences, spec_from_toml, spec_to_toml
from bcsc.training.checkpoint import NEWEST, PREVIOUS
from bcsc.training.history import EpochRow, rows_to_plain

SPEC, METRICS, SUMMARY, ORIGIN, OUTLIERS, LOCK = (
    "run.toml",
    "metrics.jsonl",
    "summary.json",
    "origin.json",
    "outliers.json",
    "lock",
)


LOCK_ATTEMPTS = 3  # one who only looks whether the folder is busy holds the lock for an instant


def try_lock(file: IO[str], kind: int) -> bool:
    """Take a lock that ends with the file, or wait a little and say no."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(0.05)
        return False
    return True


class FolderBusyError(BcscError, RuntimeError):
    """Another process is training in this folder."""


class RunFolder:
    """The files of one run. Each is written whole or not at all."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def check_same_run(self, spec: RunSpec) -> None:
        """Refuse to continue another run, naming the differences."""
        if not (self.path / SPEC).exists():
            if any((self.path / name).exists() for name in (METRICS, SUMMARY, NEWEST, PREVIOUS)):
                raise StateMismatchError(
                    f"{self.path} holds results but no {SPEC}. Take another folder, or --restart to keep it aside."
                )
            return
        try:
            text = (self.path / SPEC).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise StateMismatchError(
                f"{self.path / SPEC} cannot be read ({error}). Take another folder, or --restart to keep it aside."
            ) from error
        saved = spec_from_toml(text, str(self.path / SPEC))
        changed = differences(saved, spec)
        if changed:
            raise StateMismatchError(
                f"{self.path} holds another run: {'; '.join(changed)}. "
                "Take another folder, or --restart (in Python restart=True) to begin anew and keep the old one aside."
            )

    def summary(self) -> dict[str, Any] | None:
        """What was last known of the run."""
        return self._read_json(SUMMARY)

    def origin(self) -> dict[str, Any] | None:
        """Where the run comes from."""
        return self._read_json(ORIGIN)

    def rows(self) -> list[EpochRow] | None:
        """The measurements so far, if they can be read."""
        try:
            return [EpochRow(**json.loads(line)) for line in (self.path / METRICS).read_text().splitlines()]
        except (OSError, ValueError, TypeError):
            return None  # absent or damaged: made anew from the checkpoint

    def write_spec(self, spec: RunSpec) -> None:
        """The configuration, in the form that ``--config`` takes."""
        write_whole(self.path / SPEC, spec_to_toml(spec).encode())

    def write_rows(self, rows: Sequence[EpochRow]) -> None:
        """One line of JSON per epoch."""
        write_whole(self.path / METRICS, "".join(json.dumps(row) + "\n" for row in rows_to_plain(rows)).encode())

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """One of the JSON files."""
        write_whole(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    def _read_json(self, name: str) -> dict[str, Any] | None:
        try:
            content = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None  # absent or damaged: made anew from the checkpoint
        return content if isinstance(content, dict) else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the folder for oneself; the system lets go of it when the process ends, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / LOCK, "a")  # noqa: SIM115 -- closed below
        except OSError as error:
            raise WriteError(f"Cannot write in {self.path}: {error.strerror}. Choose another --out.") from error
        with file:
            if not any(try_lock(file, fcntl.LOCK_EX) for _ in range(LOCK_ATTEMPTS)):
                raise FolderBusyError(
                    f"Another process is training in {self.path}. Wait for it, or take another folder."
                )
            yield

    def is_busy(self) -> bool:
        """Whether a process is training in it now."""
        try:
            with open(self.path / LOCK) as file:
                return not try_lock(file, fcntl.LOCK_SH)
        except OSError:
            return False

    def set_aside(self) -> Path | None:
        """Rename the folder, if there is one, so that a new run can begin in its place."""
        if not self.path.exists():
            return None
        with self.locked():
            number, path = 1, self.path.resolve()
            while (aside := path.with_name(f"{path.name}.{number}")).exists():
                number += 1
            path.rename(aside)
        return aside
