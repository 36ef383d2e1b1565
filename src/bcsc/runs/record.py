"""What a run folder says, and how its files spell it: pure functions between text and values, without torch."""

import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_type_hints

from bcsc.choices import Measure, Period
from bcsc.errors import check_choice
from bcsc.runs.spec import RunSpec, check_type, spec_from_toml, spec_to_toml
from bcsc.training.history import EpochRow, accuracy_summary, number, over_periods, row_of

RunState = Literal["running", "interrupted", "finished", "diverged"]
STATES: tuple[RunState, ...] = ("running", "interrupted", "finished", "diverged")
ENDED: tuple[RunState, ...] = ("finished", "diverged")  # after which there is nothing to go on with

# Formats of a run folder. 1: up to cbca4d5. 2: with the settings `parallel` and `sync_batch_norm`. 3: run.toml names
# its format in its first line and ends with its checksum, summary.json holds that of metrics.jsonl. A setting that is
# not in a file of format 3 did not exist yet: the default of a new setting is what runs did before there was one.
FORMAT = 3
FIRST_LINE = re.compile(r"# A run of bcsc, format (\d{1,9})\.\n")
LAST_LINE = re.compile(r"# sha256 of all lines above: ([0-9a-f]{64})\n")
SETTINGS_OF_FORMAT_1 = (
    "data model method blocks epochs batch_size optimizer optimizer_options momentum weight_decay schedule dropout "
    "outliers mask granularity seed device precision compile deterministic"
)
ADDED_BY_FORMAT_2 = {"parallel": "exact", "sync_batch_norm": False}
LEFT_OUT_WHEN_NONE = frozenset(("lr", "threads", "subset"))
ACCURACIES = ("first_half", "last_half", "all", "final", "best")


@dataclass(frozen=True, kw_only=True)
class Summary:
    """How far a run came."""

    state: RunState
    epochs: int
    epochs_done: int
    test_accuracy: dict[str, float] | None
    gradient_evaluations: int
    seconds: float
    outliers: dict[str, Any] | None
    message: str | None
    metrics_sha256: str | None = None  # of metrics.jsonl; since format 3


@dataclass(frozen=True)
class RunRecord:
    """One run: what was asked for, what each epoch measured, how it ended, and where it was made."""

    folder: Path
    spec: RunSpec
    rows: tuple[EpochRow, ...]
    summary: Summary
    origin: Mapping[str, Any]

    @property
    def is_finished(self) -> bool:
        return self.summary.state == "finished"

    def accuracy(self, period: Period) -> float:
        """The test accuracy over a period of a finished run, in percent."""
        if not self.is_finished or self.summary.test_accuracy is None:
            raise ValueError(f"{self.folder} has no accuracies: it is {self.summary.state}.")
        return self.summary.test_accuracy[period]

    def measured(self, measure: Measure, period: Period) -> float:
        """A measurement over a period of a finished run."""
        return over_periods([getattr(row, measure) for row in self.rows], self.spec.epochs)[period]

    def seconds_so_far(self) -> list[float]:
        """The training time at the end of each epoch."""
        return list(accumulate(row.seconds for row in self.rows))


def summarise(
    spec: RunSpec,
    rows: Sequence[EpochRow],
    state: RunState,
    *,
    outliers: dict[str, Any] | None = None,
    message: str | None = None,
) -> Summary:
    """All that follows from the rows, and what does not."""
    return Summary(
        state=state,
        epochs=spec.epochs,
        epochs_done=len(rows),
        test_accuracy=accuracy_summary(rows, spec.epochs),
        gradient_evaluations=rows[-1].gradient_evaluations if rows else 0,
        seconds=float(sum(row.seconds for row in rows)),
        outliers=outliers,
        message=message,
        metrics_sha256=checksum(rows_to_text(rows)),
    )


def spec_to_text(spec: RunSpec) -> str:
    """``run.toml``: its first line names the format, its last tells whether it is whole."""
    text = f"# A run of bcsc, format {FORMAT}.\n{spec_to_toml(spec)}"
    return f"{text}# sha256 of all lines above: {checksum(text)}\n"


def spec_from_text(text: str) -> RunSpec:
    """The settings of a whole ``run.toml`` of any format, with the defaults of its time."""
    first = FIRST_LINE.match(text)
    if first is None:
        return _spec_of_format_1_or_2(text)
    if int(first[1]) > FORMAT:
        raise ValueError(f"it is of format {first[1]}, this bcsc knows up to {FORMAT}: install a later one")
    start = text.rfind("\n", 0, -1) + 1
    last = LAST_LINE.fullmatch(text, start)
    if last is None:
        raise ValueError("it is cut short")
    if last[1] != checksum(text[:start]):
        raise ValueError("it was changed after it was written")
    return spec_from_toml(text, "it")


def _spec_of_format_1_or_2(text: str) -> RunSpec:
    """Of files that do not name their format: whole is what has all settings of its time, and an end of line."""
    spec = spec_from_toml(text, "it")
    settings = tomllib.loads(text)
    of_format_1 = ADDED_BY_FORMAT_2.keys().isdisjoint(settings)
    expected = {*SETTINGS_OF_FORMAT_1.split(), *(() if of_format_1 else ADDED_BY_FORMAT_2)}
    if settings.keys() - LEFT_OUT_WHEN_NONE != expected or not text.endswith("\n"):
        raise ValueError("it is cut short")
    return RunSpec(**{**ADDED_BY_FORMAT_2, **settings}) if of_format_1 else spec


def rows_to_text(rows: Sequence[EpochRow]) -> str:
    """``metrics.jsonl``: one line of JSON per epoch."""
    return "".join(json.dumps(row._asdict()) + "\n" for row in rows)


def rows_from_text(text: str) -> tuple[EpochRow, ...]:
    """The rows of all whole lines; a last one without an end is still being written."""
    whole = text[: text.rfind("\n") + 1]
    rows = tuple(row_of(json.loads(line)) for line in whole.splitlines())
    if [row.epoch for row in rows] != list(range(1, len(rows) + 1)):
        raise ValueError(f"its {len(rows)} lines are not those of the epochs 1, 2, 3 and so on")
    return rows


def table_to_text(table: Mapping[str, Any]) -> str:
    """A JSON file of a run."""
    return json.dumps(table, indent=2) + "\n"


def summary_to_text(summary: Summary) -> str:
    """``summary.json``."""
    return table_to_text(asdict(summary))


def summary_from_text(text: str) -> Summary:
    """The summary, every entry of its type."""
    summary = checked_summary(json.loads(text))
    check_choice("state", summary.state, STATES)
    accuracy = summary.test_accuracy
    if accuracy is None:
        return summary
    return replace(summary, test_accuracy={name: number(name, accuracy.get(name), float) for name in ACCURACIES})


def origin_from_text(text: str) -> dict[str, Any]:
    """``origin.json``: a table of texts, numbers and nothing."""
    table = json.loads(text)
    if not isinstance(table, dict):
        raise TypeError(f"it holds a {type(table).__name__}, not an object")
    for name, value in table.items():
        check_type(name, value, str | int | float | bool | None)
    check_type("started", table.get("started"), str)
    check_type("resumed", table.get("resumed"), int)
    return table


def checked_summary(values: object) -> Summary:
    """The summary with these values, each of its type; what later versions may add is left alone."""
    if not isinstance(values, dict):
        raise TypeError(f"it holds a {type(values).__name__}, not an object")
    known: dict[str, Any] = {}
    for name, annotation in get_type_hints(Summary).items():
        if annotation in (int, float):
            known[name] = number(name, values.get(name), annotation)
        else:
            check_type(name, values.get(name), annotation)
            known[name] = values.get(name)
    return Summary(**known)


def checksum(text: str) -> str:
    """SHA-256, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def what_contradicts(record: RunRecord, metrics: str) -> str | None:
    """Where the files of a run that has ended disagree, if they do; ``metrics`` is the text of ``metrics.jsonl``."""
    summary, rows = record.summary, record.rows
    if summary.state not in ENDED:
        return None  # under way, or stopped between writing one file and the next
    if record.is_finished and len(rows) != record.spec.epochs:
        return f"it says it is finished but has {len(rows)} of {record.spec.epochs} epochs"
    if summary.metrics_sha256 not in (None, checksum(metrics)):
        return "metrics.jsonl is not the one that summary.json was made from"
    if not record.is_finished:
        return None
    expected = summarise(record.spec, rows, summary.state)
    for name in ("epochs", "epochs_done", "test_accuracy", "gradient_evaluations", "seconds"):
        says, other = getattr(summary, name), getattr(expected, name)
        if says != other:
            return f"summary.json says {name} = {says!r}, the other files say {other!r}"
    return None
