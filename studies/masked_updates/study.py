"""Carry the study out: for every arm find the best rate on held-out text, then run it with three seeds on other text.

A run is a folder of ``settings.toml``, ``evaluations.jsonl`` (a line for each) and ``origin.json``, written when it is
done: what is there is not run again.
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from bcsc.errors import DamagedRunError
from bcsc.files import write_whole
from bcsc.origin import describe_origin, now
from bcsc.runs.spec import toml_value
from studies.masked_updates.arms import (
    ARMS,
    FIRST_PLACE,
    MOST_RATES,
    SCHEDULES,
    SEEDS,
    STAGES,
    TUNING_SEED,
    LanguageRun,
    rate_on_grid,
)
from studies.masked_updates.language_model import train_language_model

SETTINGS, EVALUATIONS, ORIGIN = "settings.toml", "evaluations.jsonl", "origin.json"


class Cell(NamedTuple):
    """A row of the table: the runs in it differ by their rate and seed alone."""

    base: str
    schedule: str
    arm: str

    def run(self, place: int, seed: int, size: Mapping[str, Any]) -> LanguageRun:
        """A run of this cell: with the tuning seed it is measured on the validation text, else on the test text."""
        part = "validation" if seed == TUNING_SEED else "test"
        own = {"base": self.base, **ARMS[self.arm], "lr": rate_on_grid(place), "seed": seed, "measured_on": part}
        return LanguageRun(**{**own, **size, **SCHEDULES[self.schedule]})

    def folder(self, run: LanguageRun) -> str:
        """The name of a run's folder."""
        words = f"{self.base} {self.schedule} {self.arm} lr {run.lr:g} seed {run.seed}"
        return re.sub(r"[^a-z0-9.]+", "-", words.lower())


class Record(NamedTuple):
    """A run and what its evaluations measured."""

    run: LanguageRun
    rows: tuple[Mapping[str, Any], ...]

    @property
    def loss(self) -> float:
        """On the held-out text at the end; infinite if the run did not get there."""
        last = self.rows[-1]
        is_whole = last["step"] == self.run.steps and last["held_out_loss"] is not None
        return float(last["held_out_loss"]) if is_whole else math.inf


def cells(only: Iterable[str] = ()) -> Iterator[Cell]:
    """All of them in the order in which they are run, or those of some bases."""
    bases = set(only)
    for base, schedule, arms in STAGES:
        if not bases or base in bases:
            yield from (Cell(base, schedule, arm) for arm in arms)


class LanguageStudy:
    """The runs in a folder, and the text and the size for those that are missing."""

    def __init__(self, root: Path, text: Tensor, size: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.root, self.text, self.size, self.say = root, text, size, say

    def carry_out(self, cell: Cell) -> None:
        """Find the best rate, and make the final runs."""
        place = self.chosen_place(cell)
        for seed in SEEDS:
            self.record(cell, place, seed)

    def chosen_place(self, cell: Cell) -> int:
        """Where on the grid an arm's best rate is; the search for a masked arm's begins at that of the dense one."""
        dense = cell._replace(arm="dense")
        first = FIRST_PLACE[cell.base] if cell == dense else self.chosen_place(dense)
        return best_place(first, lambda place: self.record(cell, place, TUNING_SEED).loss)

    def record(self, cell: Cell, place: int, seed: int) -> Record:
        """A run, made if it is not there yet."""
        run = cell.run(place, seed, self.size)
        folder = self.root / cell.folder(run)
        if not (folder / EVALUATIONS).exists():
            write_run(folder, run, self.text)
            record = read_run(folder)
            self.say(f"{folder.name}: {record.loss:.4f} on the {run.measured_on} text")
        record = read_run(folder)
        if record.run != run:
            raise DamagedRunError(f"{folder} holds another run, of {record.run}. Take another folder.")
        return record


def best_place(first: int, loss_at: Callable[[int], float]) -> int:
    """Where on the grid the loss is smallest: it grows on either side of it, as far as enough places were tried.

    Where several are alike, as runs are that diverge, the smallest rate counts as the best.
    """

    def rank(place: int) -> tuple[float, int]:
        return losses[place], place

    losses: dict[int, float] = {}
    best, missing = first, [first]
    while missing and len(losses) < MOST_RATES:
        losses[missing[0]] = loss_at(missing[0])
        best = min(losses, key=rank)
        missing = [place for place in (best - 1, best + 1) if place not in losses]
    return best


def write_run(folder: Path, run: LanguageRun, text: Tensor) -> None:
    """Make a run and write it down; the evaluations last, as they say that it is done."""
    origin = describe_origin("cpu")
    lines = []
    for row in train_language_model(run, text):
        finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
        lines.append(json.dumps(finite) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    settings = "".join(f"{name} = {toml_value(value)}\n" for name, value in asdict(run).items())
    write_whole(folder / SETTINGS, settings.encode())
    write_whole(folder / ORIGIN, (json.dumps({**origin, "ended": now()}, indent=1) + "\n").encode())
    write_whole(folder / EVALUATIONS, "".join(lines).encode())


def read_run(folder: Path) -> Record:
    """What ``write_run`` has written."""
    try:
        run = LanguageRun(**tomllib.loads((folder / SETTINGS).read_text(encoding="utf-8")))
        rows = tuple(json.loads(line) for line in (folder / EVALUATIONS).read_text(encoding="utf-8").splitlines())
        record = Record(run, rows)
        _ = record.loss  # which needs a row
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise DamagedRunError(f"{folder} cannot be read: {error}. Remove it, and it is run again.") from error
    return record
