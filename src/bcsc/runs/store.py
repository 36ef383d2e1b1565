"""Reading run folders. A damaged one is reported by its path and harms no other."""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from bcsc.errors import BcscError, DamagedRunError
from bcsc.runs.record import EpochRow, RunRecord, Summary
from bcsc.runs.spec import RunSpec, spec_from_toml

RUN_FILES = ("run.toml", "metrics.jsonl", "summary.json")
ALWAYS_WRITTEN = [f.name for f in fields(RunSpec) if f.default is not None]
PERIODS_OF_A_FINISHED_RUN = ("first_half", "last_half", "all", "final")
T = TypeVar("T")


@dataclass(frozen=True)
class DamagedRun:
    """A run folder that could not be read, and why."""

    folder: Path
    reason: str


def read_runs(root: Path) -> tuple[list[RunRecord], list[DamagedRun]]:
    """Every run folder at or under ``root``: what could be read, and what could not."""
    records, damaged = [], []
    for folder in run_folders(root):
        try:
            records.append(read_run(folder))
        except DamagedRunError as error:
            damaged.append(DamagedRun(folder, str(error)))
    return records, damaged


def run_folders(root: Path) -> list[Path]:
    """The folders with a file of a run in them, except NAME.1, NAME.2...: those were set aside for a new NAME."""
    found = {path.parent for name in RUN_FILES for path in root.rglob(name)}
    return sorted(folder for folder in found if not (folder.suffix[1:].isdigit() and folder.with_suffix("") in found))


def read_run(folder: Path) -> RunRecord:
    """The record of one run; ``DamagedRunError`` says which file is at fault."""
    record = RunRecord(
        folder=folder,
        spec=_read(folder / "run.toml", _parse_spec),
        rows=_read(folder / "metrics.jsonl", _parse_rows) if (folder / "metrics.jsonl").exists() else (),
        summary=_read(folder / "summary.json", lambda text: _filled_in(Summary, json.loads(text))),
        origin=_read(folder / "origin.json", _parse_table),
    )
    _check_whole(record)
    return record


def _read(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DamagedRunError(f"{path} is missing.") from error
    except (OSError, ValueError, TypeError, BcscError) as error:
        raise DamagedRunError(f"{path} cannot be read: {str(error).rstrip('.')}.") from error


def _parse_spec(text: str) -> RunSpec:
    """A spec that was written whole: a file cut short can still be good TOML, with defaults for what is gone."""
    spec = spec_from_toml(text, "run.toml")
    gone = [name for name in ALWAYS_WRITTEN if name not in tomllib.loads(text)]
    if gone or not text.endswith("\n"):
        raise ValueError(f"it is cut short{' before ' + gone[0] if gone else ''}.")
    return spec


def _parse_rows(text: str) -> tuple[EpochRow, ...]:
    """Every whole line; a last one without an end is still being written."""
    whole = text[: text.rfind("\n") + 1]
    return tuple(_filled_in(EpochRow, json.loads(line)) for line in whole.splitlines())


def _parse_table(text: str) -> Mapping[str, Any]:
    table = json.loads(text)
    if not isinstance(table, dict):
        raise TypeError(f"it holds {type(table).__name__}, not an object.")
    return table


def _filled_in(kind: type[T], values: Any) -> T:
    """The dataclass with these values; what later versions may add is left alone."""
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: values[name] for name in known if name in values})


def _check_whole(record: RunRecord) -> None:
    """A finished run has all its epochs and all its accuracies."""
    if not record.is_finished:
        return
    summary = record.summary
    missing = [name for name in PERIODS_OF_A_FINISHED_RUN if name not in (summary.test_accuracy or {})]
    if missing or len(record.rows) != summary.epochs or [row.epoch for row in record.rows][-1:] != [summary.epochs]:
        raise DamagedRunError(
            f"{record.folder} says it is finished but has {len(record.rows)} of {summary.epochs} epochs"
            f"{' and lacks the accuracy of ' + ', '.join(missing) if missing else ''}."
        )
