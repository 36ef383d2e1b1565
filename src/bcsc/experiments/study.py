"""Study: an experiment and the runs found for it, or runs that belong to no experiment."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bcsc.choices import Period
from bcsc.errors import BcscError, DamagedRunError
from bcsc.experiments.catalog import EXPERIMENTS, Axis, Cell, Experiment, cut_down, paper_numbers
from bcsc.runs.folder import DamagedRun, read_runs
from bcsc.runs.record import RunRecord
from bcsc.runs.spec import RunSpec, spec_to_toml

EXPERIMENT_FILE = "experiment.json"
OWN_COLUMNS = ("data", "model", "method", "blocks", "outliers", "seed", "threads")  # shown in a cell's own words


@dataclass(frozen=True, kw_only=True)
class Study:
    """Cells in the order of the table, the runs in each and the paper's numbers for it."""

    name: str
    title: str
    question: str
    source: str
    note: str
    scope: str  # how far a verdict on it reaches, in words
    num_planned: int
    runs: Mapping[Cell, tuple[RunRecord, ...]]
    paper: Mapping[tuple[Cell, Period], float]
    compared_by: Axis = "epochs"

    @property
    def finished(self) -> dict[Cell, tuple[RunRecord, ...]]:
        """The finished runs of every cell."""
        return {cell: tuple(run for run in runs if run.is_finished) for cell, runs in self.runs.items()}

    @property
    def caveat(self) -> str:
        """The note, and how many runs are not there yet; empty when all is as planned."""
        return "; ".join(part for part in (self.note, self._missing) if part)

    @property
    def reach(self) -> str:
        """How far a verdict on the runs that are finished reaches."""
        return ", ".join(part for part in (self.scope, self._missing) if part)

    @property
    def _missing(self) -> str:
        done = sum(map(len, self.finished.values()))
        return f"{done} of {self.num_planned} runs finished" if done < self.num_planned else ""


def write_experiment(folder: Path, name: str, cut: Mapping[str, Any]) -> None:
    """Say what the runs in ``folder`` are for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / EXPERIMENT_FILE).write_text(json.dumps({"experiment": name, "cut": dict(cut)}, indent=1) + "\n")


def read_experiment(folder: Path) -> Experiment | None:
    """The experiment whose runs are in ``folder``, if one was written there."""
    path = folder / EXPERIMENT_FILE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
        return cut_down(EXPERIMENTS[content["experiment"]], **content["cut"])
    except (ValueError, TypeError, KeyError, BcscError) as error:
        raise DamagedRunError(f"{path} cannot be read: {error!r}. Run bcsc reproduce again to rewrite it.") from error


def read_studies(root: Path) -> tuple[list[Study], list[DamagedRun]]:
    """Every experiment at or under ``root`` in the order of the catalog, then the runs that belong to none."""
    records, damaged = read_runs(root)
    studies, claimed = [], set()
    for folder in sorted(path.parent for path in root.rglob(EXPERIMENT_FILE)):
        try:
            experiment = read_experiment(folder)
        except DamagedRunError as error:
            damaged.append(DamagedRun(folder / EXPERIMENT_FILE, str(error)))
            continue
        if experiment is not None:
            study = study_of(experiment, [record for record in records if record.folder.is_relative_to(folder)])
            claimed |= {record.folder for runs in study.runs.values() for record in runs}
            studies.append(study)
    studies.sort(key=lambda study: list(EXPERIMENTS).index(study.name))
    others = [record for record in records if record.folder not in claimed]
    return studies + ([study_of_others(others)] if others else []), damaged


def study_of(experiment: Experiment, records: Iterable[RunRecord]) -> Study:
    """The runs of an experiment, found by what they compute."""
    found = {what_it_computes(record.spec): record for record in records}
    planned = experiment.runs()
    runs: dict[Cell, list[RunRecord]] = {cell: [] for cell in experiment.cells()}
    for run in planned:
        record = found.get(what_it_computes(run.spec))
        if record is not None:
            runs[run.cell].append(record)
    return Study(
        name=experiment.name,
        title=experiment.title,
        question=experiment.question,
        source=experiment.source,
        note=experiment.note,
        scope=experiment.scope,
        num_planned=len(planned),
        runs={cell: tuple(group) for cell, group in runs.items()},
        paper=paper_numbers(experiment),
        compared_by=experiment.compared_by,
    )


def what_it_computes(spec: RunSpec) -> str:
    """The same text for runs that are to give the same numbers, however many threads they use."""
    return spec_to_toml(replace(spec, threads=None))


def study_of_others(records: Sequence[RunRecord]) -> Study:
    """Runs that belong to no experiment, grouped by everything but their seed."""
    settings = [asdict(record.spec) for record in records]
    varying = [name for name in settings[0] if name not in OWN_COLUMNS and len({str(s[name]) for s in settings}) > 1]
    runs: dict[Cell, list[RunRecord]] = {}
    for record in records:
        runs.setdefault(_cell_of(record.spec, varying), []).append(record)
    return Study(
        name="other-runs",
        title="Other runs",
        question="Runs that belong to no experiment of the catalog.",
        source="",
        note="",
        scope="",
        num_planned=len(records),
        runs={cell: tuple(group) for cell, group in runs.items()},
        paper={},
    )


def _cell_of(spec: RunSpec, varying: Sequence[str]) -> Cell:
    blocks = 1 if spec.method == "sgd" else spec.blocks
    arm = spec.method.upper() if blocks == 1 else f"{spec.method.upper()} M={blocks}"
    values = {name: getattr(spec, name) for name in varying}
    label = ", ".join([arm, *(f"{name}={'default' if value is None else value}" for name, value in values.items())])
    condition = spec.data if spec.outliers == "none" else f"{spec.data}, {spec.outliers}"
    return Cell(spec.model, condition, label, blocks)
