"""The run folder: what is in it, who may write to it, and when it is another run's."""

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bcsc.catalog.spec import RunSpec, differences, spec_from_toml, spec_to_toml
from bcsc.errors import BcscError, StateMismatchError
from bcsc.training.checkpoint import WriteError, write_whole
from bcsc.training.history import EpochRow, rows_to_plain

SPEC, METRICS, SUMMARY, ORIGIN, OUTLIERS, LOCK = (
    "run.toml",
    "metrics.jsonl",
    "summary.json",
    "origin.json",
    "outliers.json",
    "lock",
)


class FolderBusyError(BcscError, RuntimeError):
    """Another process is training in this folder."""


class RunFolder:
    """The files of one run. Each is written whole or not at all."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def check_same_run(self, spec: RunSpec) -> None:
        """Refuse to continue another run, naming the differences."""
        if not (self.path / SPEC).exists():
            if (self.path / METRICS).exists():
                raise StateMismatchError(
                    f"{self.path} holds results but no {SPEC}. Take another folder, or --restart to keep it aside."
                )
            return
        saved = spec_from_toml((self.path / SPEC).read_text(), str(self.path / SPEC))
        changed = differences(saved, spec)
        if changed:
            raise StateMismatchError(
                f"{self.path} holds another run: {'; '.join(changed)}. "
                "Take another folder, or --restart to begin anew and keep the old one aside."
            )

    def summary(self) -> dict[str, Any] | None:
        """What was last known of the run."""
        return self._read_json(SUMMARY)

    def origin(self) -> dict[str, Any] | None:
        """Where the run comes from."""
        return self._read_json(ORIGIN)

    def rows(self) -> list[EpochRow]:
        """The measurements so far."""
        return [EpochRow(**json.loads(line)) for line in (self.path / METRICS).read_text().splitlines()]

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
            content: dict[str, Any] = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None  # absent or damaged: it is made anew from the checkpoint
        return content

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Have the folder for oneself; the system lets go of it when the process ends, however it ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            file = open(self.path / LOCK, "a")  # noqa: SIM115 -- closed below
        except OSError as error:
            raise WriteError(f"Cannot write in {self.path}: {error.strerror}. Choose another --out.") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderBusyError(
                    f"Another process is training in {self.path}. Wait for it, or take another folder."
                ) from None
            yield

    def is_busy(self) -> bool:
        """Whether a process is training in it now."""
        if not (self.path / LOCK).exists():
            return False
        try:
            with self.locked():
                return False
        except FolderBusyError:
            return True

    def set_aside(self) -> Path | None:
        """Rename the folder, if there is one, so that a new run can begin in its place."""
        if not self.path.exists():
            return None
        with self.locked():
            number = 1
            while (aside := self.path.with_name(f"{self.path.name}.{number}")).exists():
                number += 1
            self.path.rename(aside)
        return aside
