"""Study: an experiment and the runs found for it, or runs that belong to no experiment."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bcsc.choices import Period
from bcsc.errors import BcscError, DamagedRunError
from bcsc.experiments.catalog import EXPERIMENTS, cut_down, is_of_the_catalog, paper_numbers
from bcsc.experiments.experiment import Axis, Cell, Experiment
from bcsc.experiments.planning.plan_file import experiment_from_toml
from bcsc.experiments.planning.sayings import PlannedClaim
from bcsc.experiments.tuning import TIMING, TUNING, Decision, read_decisions, with_decisions
from bcsc.files import write_whole
from bcsc.runs.folder import DamagedRun, read_runs
from bcsc.runs.record import RunRecord
from bcsc.runs.spec import RunSpec, check_type, spec_to_toml

EXPERIMENT_FILE = "experiment.json"  # the name of the plan and how it is cut down
PLAN_FILE = "plan.toml"  # a plan of one's own
OWN_COLUMNS = ("data", "model", "method", "blocks", "outliers", "seed", "threads")  # shown in a cell's own words
OTHER_RUNS = "other-runs"  # the name of the study of runs that belong to no experiment
DEFAULTS = RunSpec()


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
    is_named: bool = False  # whether it is one of the package's own
    claims: tuple[PlannedClaim, ...] = ()
    arm_labels: Mapping[str, str] = field(default_factory=dict)  # from an arm's label in the table to that in the plan
    budget: Axis = "epochs"  # what all arms had as much of
    decisions: Mapping[Cell, Decision] = field(default_factory=dict)  # what was tuned or timed before the final runs
    folder: Path | None = None  # where it was found

    @property
    def finished(self) -> dict[Cell, tuple[RunRecord, ...]]:
        """The finished runs of every cell."""
        return {cell: tuple(run for run in runs if run.is_finished) for cell, runs in self.runs.items()}

    @property
    def num_finished(self) -> int:
        return sum(map(len, self.finished.values()))

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
        done = self.num_finished
        return f"{done} of {self.num_planned} runs finished" if done < self.num_planned else ""


def write_experiment(folder: Path, name: str, cut: Mapping[str, Any], plan: str | None = None) -> None:
    """Say what the runs in ``folder`` are for; ``plan`` is the text of a plan that is not in the package."""
    folder.mkdir(parents=True, exist_ok=True)
    if plan is not None:
        write_whole(folder / PLAN_FILE, plan.encode())
    content = json.dumps({"experiment": name, "cut": dict(cut)}, indent=1)
    write_whole(folder / EXPERIMENT_FILE, f"{content}\n".encode())


def read_experiment(folder: Path) -> Experiment | None:
    """The experiment whose runs are in ``folder``, if one was written there."""
    path, plan = folder / EXPERIMENT_FILE, folder / PLAN_FILE
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        name = content["experiment"]
        check_type("experiment", name, str)
        whole = (
            experiment_from_toml(plan.read_text(encoding="utf-8"), name, str(plan))
            if plan.exists()
            else EXPERIMENTS[name]
        )
        experiment = with_decisions(cut_down(whole, **content["cut"]), read_decisions(folder))
        experiment.runs()  # a seed that is none shows only here
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, BcscError) as error:
        reason = str(error).rstrip(".") if isinstance(error, BcscError) else repr(error)
        raise DamagedRunError(f"{path} cannot be read: {reason}. Run the same command again to rewrite it.") from error
    return experiment


def read_cut(folder: Path) -> dict[str, Any]:
    """How the experiment in ``folder`` is cut down."""
    cut: dict[str, Any] = json.loads((folder / EXPERIMENT_FILE).read_text(encoding="utf-8"))["cut"]
    return cut


def read_studies(*roots: Path) -> tuple[list[Study], list[DamagedRun]]:
    """Every experiment in the folders, the paper's first and in its order, then the runs that belong to none."""
    roots = outermost(roots)
    read = [read_runs(root) for root in roots]
    records, damaged = [run for runs, _ in read for run in runs], [bad for _, some in read for bad in some]
    studies, claimed = [], set()
    for folder in sorted(path.parent for root in roots for path in root.rglob(EXPERIMENT_FILE)):
        try:
            experiment = read_experiment(folder)
        except DamagedRunError as error:
            damaged.append(DamagedRun(folder / EXPERIMENT_FILE, str(error)))
            continue
        if experiment is not None:
            inside = [record for record in records if record.folder.is_relative_to(folder)]
            study = replace(study_of(experiment, inside), folder=folder)
            decided = {cell: one for cell, one in read_decisions(folder).items() if cell in study.runs}
            study = replace(study, decisions=decided)
            claimed |= {record.folder for runs in study.runs.values() for record in runs}
            before = [folder / name for name in (TUNING, TIMING)]
            claimed |= {run.folder for run in inside if any(run.folder.is_relative_to(path) for path in before)}
            studies.append(study)
    studies.sort(key=lambda study: list(EXPERIMENTS).index(study.name) if study.is_named else len(EXPERIMENTS))
    others = [record for record in records if record.folder not in claimed]
    return studies + ([study_of_others(others)] if others else []), damaged


def outermost(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The folders without those that are, or lie in, one before or around them."""
    resolved = [folder.resolve() for folder in folders]
    return tuple(
        folder
        for index, (folder, path) in enumerate(zip(folders, resolved, strict=True))
        if path not in resolved[:index] and not set(path.parents) & set(resolved)
    )


def study_of(experiment: Experiment, records: Iterable[RunRecord]) -> Study:
    """The runs of an experiment, found by what they compute."""
    found = one_of_each(records)
    runs: dict[Cell, list[RunRecord]] = {cell: [] for cell in experiment.cells()}
    for run in experiment.runs():
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
        num_planned=len(runs) * len(experiment.seeds),
        runs={cell: tuple(group) for cell, group in runs.items()},
        paper=paper_numbers(experiment),
        compared_by=experiment.compared_by,
        is_named=is_of_the_catalog(experiment),
        claims=experiment.claims,
        arm_labels=experiment.arm_labels(),
        budget=experiment.budget,
    )


def what_it_computes(spec: RunSpec) -> str:
    """The same text for runs that are to give the same numbers: on any threads, the paper's rate written out or not."""
    return spec_to_toml(replace(spec, threads=None, lr=spec.learning_rate))


def one_of_each(records: Iterable[RunRecord]) -> dict[str, RunRecord]:
    """By what they compute, one of the runs that are to give the same numbers: the last that is finished, if any is."""
    found: dict[str, RunRecord] = {}
    for record in records:
        if record.is_finished or what_it_computes(record.spec) not in found:
            found[what_it_computes(record.spec)] = record
    return found


def study_of_others(records: Sequence[RunRecord]) -> Study:
    """Runs that belong to no experiment, grouped by everything but their seed; W ranks at once are a method each."""
    settings = [asdict(record.spec) for record in records]
    varying = [name for name in settings[0] if name not in OWN_COLUMNS and len({str(s[name]) for s in settings}) > 1]
    groups: dict[Cell, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(_cell_of(record, varying), []).append(record)
    runs = {cell: tuple(one_of_each(group).values()) for cell, group in groups.items()}
    return Study(
        name=OTHER_RUNS,
        title="Other runs",
        question="Runs that belong to no experiment of the catalog.",
        source="",
        note="",
        scope="",
        num_planned=sum(map(len, runs.values())),
        runs=runs,
        paper={},
    )


def _cell_of(record: RunRecord, varying: Sequence[str]) -> Cell:
    spec = record.spec
    blocks = 1 if spec.method == "sgd" else spec.blocks
    arm = spec.method.upper() if blocks == 1 else f"{spec.method.upper()} M={blocks}"
    values = {name: getattr(spec, name) for name in varying if getattr(spec, name) != getattr(DEFAULTS, name)}
    if spec.validation is not None:
        values["validation"] = spec.validation  # measured on samples that were held out
    if spec.parallel == "blocks":
        values["W"] = record.origin.get("ranks", "unknown")
    label = ", ".join([arm, *(f"{name}={value}" for name, value in values.items())])
    condition = spec.data if spec.outliers == "none" else f"{spec.data}, {spec.outliers}"
    return Cell(spec.model, condition, label, blocks)
