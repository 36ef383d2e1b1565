"""What is decided before the final runs: settings on held-out samples, and epochs by the clock.

Candidates train as the final runs do, but for the held-out samples and for the seeds. The test set decides nothing.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from bcsc.errors import DamagedRunError, InvalidArgumentError, MissingExtraError
from bcsc.experiments.campaigns.campaign import Job
from bcsc.experiments.experiment import Cell, Experiment, as_file_name, stretched
from bcsc.experiments.planning.arms import Settings, Tuned
from bcsc.files import write_whole
from bcsc.runs.folder import RunFolder
from bcsc.runs.record import RunRecord
from bcsc.training.history import EpochRow

DECISIONS_FILE = "decisions.json"
TUNING, TIMING = "tuning", "timing"  # folders beside the final runs
TIMED_EPOCHS = 2  # of which the quicker counts: the first also warms up
NEAR_THE_END = 1.1  # so close to an end of a range, as a ratio, the best may lie beyond it
LARGEST = 1e12  # that a file can say of an accuracy or of seconds
CarryOut = Callable[[Sequence[Job]], None]


@dataclass(frozen=True)
class Candidate:
    """Settings that were tried, and the final accuracy on held-out samples for every seed; none where it diverged."""

    settings: Settings
    accuracies: tuple[float | None, ...]

    @property
    def score(self) -> float:
        """The mean over the seeds; one that diverged is out of the question."""
        finished = [accuracy for accuracy in self.accuracies if accuracy is not None]
        return fmean(finished) if len(finished) == len(self.accuracies) else -math.inf

    @property
    def percentage(self) -> str:
        return "diverged" if math.isinf(self.score) else f"{self.score:.2f} %"


@dataclass(frozen=True)
class Decision:
    """What the final runs of a cell take, and why; without settings nothing that was tried came to its end."""

    settings: Settings
    candidates: tuple[Candidate, ...] = ()
    seconds_per_epoch: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def choice(self) -> str:
        """What was chosen."""
        return ", ".join(f"{name} = {value}" for name, value in self.settings.items()) or "nothing"

    @property
    def tried(self) -> list[str]:
        """Every candidate, and its accuracy on held-out samples."""
        return [f"{', '.join(map(str, c.settings.values()))}: {c.percentage}" for c in self.candidates]

    @property
    def words(self) -> str:
        """What was decided and why, in a line."""
        reasons = [f"on held-out samples {'; '.join(self.tried)}"] if self.candidates else []
        reasons += [f"{self.seconds_per_epoch:.2f} s per epoch"] if self.seconds_per_epoch is not None else []
        return f"{self.choice} ({', '.join(reasons)})" + "".join(f"; {warning}" for warning in self.warnings)


def decide(experiment: Experiment, out: Path, carry_out: CarryOut) -> dict[Cell, Decision]:
    """Carry out what has to be known first, and decide; nothing where all is in the plan."""
    timed = time_epochs(experiment, out / TIMING, carry_out) if experiment.budget == "seconds" else {}
    tuned = tune(with_decisions(experiment, timed), out / TUNING, carry_out)
    return {cell: both(timed.get(cell), tuned.get(cell)) for cell in {**timed, **tuned}}


def both(timed: Decision | None, tuned: Decision | None) -> Decision:
    """One decision of two."""
    timed, tuned = timed or Decision({}), tuned or Decision({})
    return Decision(
        {**timed.settings, **tuned.settings},
        tuned.candidates,
        timed.seconds_per_epoch,
        timed.warnings + tuned.warnings,
    )


def with_decisions(experiment: Experiment, decisions: Mapping[Cell, Decision]) -> Experiment:
    """The experiment with what was decided in the place of what was open."""
    return replace(experiment, decided={cell: decision.settings for cell, decision in decisions.items()})


def time_epochs(experiment: Experiment, root: Path, carry_out: CarryOut) -> dict[Cell, Decision]:
    """Time an epoch's training in every cell, and give each as many as take the time of the recipe's at the slowest."""
    jobs = {}
    for cell, settings in experiment.cells().items():
        some = {name: value.values[0] if value.values else value.low for name, value in tuned_in(settings).items()}
        settings = {**settings, **some, "epochs": TIMED_EPOCHS}
        spec = replace(experiment.recipe, model=cell.model, seed=min(experiment.seeds), **settings)
        jobs[cell] = Job(cell.name, spec, root)
    carry_out(list(jobs.values()))
    rows = {cell: record_of(job).rows for cell, job in jobs.items()}
    seconds = {cell: min(map(training_seconds, some)) for cell, some in rows.items() if some}
    epochs = stretched(seconds, experiment.recipe.epochs)
    timed = {cell: Decision({"epochs": epochs[cell]}, seconds_per_epoch=seconds[cell]) for cell in seconds}
    return {cell: timed.get(cell, Decision({}, warnings=("it diverged while it was timed",))) for cell in jobs}


def training_seconds(row: EpochRow) -> float:
    """What an epoch took without its test, which costs a short epoch a larger share than a long one."""
    return row.gradient_evaluations / row.epoch / row.images_per_second


def tune(experiment: Experiment, root: Path, carry_out: CarryOut) -> dict[Cell, Decision]:
    """Try candidates for every cell with tuned settings, round by round, and choose the best of each."""
    tuned = {cell: found for cell, settings in experiment.cells().items() if (found := tuned_in(settings))}
    tried: dict[Cell, list[Candidate]] = {cell: [] for cell in tuned}
    while candidates := [(cell, new) for cell in tuned for new in next_candidates(tuned[cell], tried[cell])]:
        jobs = [trial_jobs(experiment, cell, settings, root) for cell, settings in candidates]
        carry_out([job for some in jobs for job in some])
        for (cell, settings), some in zip(candidates, jobs, strict=True):
            records = [record_of(job) for job in some]
            accuracies = [record.accuracy("final") if record.is_finished else None for record in records]
            tried[cell].append(Candidate(settings, tuple(accuracies)))
    return {cell: choose(tuned[cell], tried[cell]) for cell in tuned}


def trial_jobs(experiment: Experiment, cell: Cell, settings: Settings, root: Path) -> list[Job]:
    """The runs of a candidate: those of its cell, on held-out samples and with seeds of their own."""
    if experiment.tuning is None:
        raise InvalidArgumentError("To tune, an experiment must say how many samples to hold out.")
    words = as_file_name(" ".join(f"{name} {value}" for name, value in settings.items()))
    fixed = {"model": cell.model, "validation": experiment.tuning.validation}
    spec = replace(experiment.recipe, **{**experiment.cells()[cell], **settings, **fixed})
    return [Job(f"{cell.name}-{words}-seed-{seed}", replace(spec, seed=seed), root) for seed in experiment.tuning.seeds]


def tuned_in(settings: Settings) -> dict[str, Tuned]:
    """The settings that are still to be chosen."""
    return {name: value for name, value in settings.items() if isinstance(value, Tuned)}


def record_of(job: Job) -> RunRecord:
    """What a run that has been carried out has left."""
    return RunFolder(job.folder).read()


def next_candidates(tuned: Mapping[str, Tuned], tried: Sequence[Candidate]) -> list[dict[str, Any]]:
    """What to try next, which follows from what was tried: a whole grid, or one at a time where Optuna searches."""
    trials = max(setting.trials for setting in tuned.values())
    if trials:
        return [searched_candidate(tuned, tried)] if len(tried) < trials else []
    grid = product(*(setting.values for setting in tuned.values()))
    return [] if tried else [dict(zip(tuned, values, strict=True)) for values in grid]


def searched_candidate(tuned: Mapping[str, Tuned], tried: Sequence[Candidate]) -> dict[str, Any]:
    """Optuna's next suggestion, by a search that is seeded and told everything again, so that it can be resumed."""
    if find_spec("optuna") is None:
        raise MissingExtraError("To tune over a range Optuna is needed: pip install 'bcsc[tune]', or give a list.")
    import optuna

    def suggested(trial: optuna.Trial) -> dict[str, Any]:
        return {
            name: trial.suggest_categorical(name, setting.values)
            if setting.values
            else trial.suggest_float(name, setting.low, setting.high, log=True)
            for name, setting in tuned.items()
        }

    with few_words(optuna):
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=4)
        )
        for candidate in tried:
            trial = study.ask()
            suggested(trial)
            study.tell(trial, max(candidate.score, 0.0))
        return suggested(study.ask())


@contextmanager
def few_words(optuna: Any) -> Iterator[None]:
    """Keep Optuna from telling of every search."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def choose(tuned: Mapping[str, Tuned], candidates: Sequence[Candidate]) -> Decision:
    """The candidate with the best mean, the first of several; with a word where a better one may lie outside."""
    best = max(candidates, key=lambda candidate: candidate.score)
    if math.isinf(best.score):
        return Decision({}, tuple(candidates), warnings=("no candidate came to its end: try smaller rates",))
    warnings = [edge_warning(name, tuned[name], value) for name, value in best.settings.items()]
    return Decision(dict(best.settings), tuple(candidates), warnings=tuple(filter(None, warnings)))


def edge_warning(name: str, tuned: Tuned, value: Any) -> str:
    """In words, that the chosen value lies at an end of what was tried; empty if not, or if there are no numbers."""
    numbers = [number for number in tuned.values if isinstance(number, int | float) and not isinstance(number, bool)]
    if tuned.trials:
        end = "smallest" if value < tuned.low * NEAR_THE_END else "largest" if value > tuned.high / NEAR_THE_END else ""
    elif len(numbers) < max(2, len(tuned.values)):
        end = ""
    else:
        end = "smallest" if value == min(numbers) > 0 else "largest" if value == max(numbers) else ""
    return f"{name} = {value} is the {end} that was tried: the best may lie beyond it" if end else ""


def write_decisions(out: Path, decisions: Mapping[Cell, Decision]) -> None:
    """Keep what was decided, and why, beside the runs."""
    content = [{"cell": astuple(cell), **asdict(decision)} for cell, decision in decisions.items()]
    write_whole(out / DECISIONS_FILE, (json.dumps(content, indent=1) + "\n").encode())


def read_decisions(out: Path) -> dict[Cell, Decision]:
    """What was decided in this folder; nothing where nothing had to be."""
    path = out / DECISIONS_FILE
    if not path.exists():
        return {}
    try:
        entries: list[dict[str, Any]] = [dict(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
        return {Cell(*entry.pop("cell")): _decision(**entry) for entry in entries}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedRunError(f"{path} cannot be read: {error!r}. Run the same command again to rewrite it.") from error


def earlier_decisions(out: Path, experiment: Experiment) -> dict[Cell, Decision]:
    """What was decided in this folder of what the experiment leaves open."""
    open_ones = [cell for cell, settings in experiment.cells().items() if experiment.undecided(settings)]
    try:
        return {cell: decision for cell, decision in read_decisions(out).items() if cell in open_ones}
    except DamagedRunError:
        return {}  # it is written anew


def tuned_otherwise(before: Experiment, joined: Experiment, wanted: Experiment) -> list[str]:
    """In words, the cells that were tuned in another way than the plan now says, and that are not tuned anew."""
    cells, anew = joined.cells(), wanted.cells()
    return [
        f"{cell.name} was tuned in another way and is left out now"
        for cell, settings in replace(before, decided={}).cells().items()
        if cell in cells and cell not in anew and tuned_in(settings)
        if before.tuning != joined.tuning or tuned_in(settings) != tuned_in(cells[cell])
    ]


def _decision(settings: Any, candidates: Any, seconds_per_epoch: Any, warnings: Any) -> Decision:
    tried = tuple(Candidate(dict(c["settings"]), _accuracies(c["accuracies"])) for c in candidates)
    seconds = None if seconds_per_epoch is None else _number(seconds_per_epoch)
    return Decision(dict(settings), tried, seconds, tuple(map(str, warnings)))


def _accuracies(values: Any) -> tuple[float | None, ...]:
    if not values:
        raise ValueError("a candidate has no accuracies")
    return tuple(None if value is None else _number(value) for value in values)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < LARGEST:
        raise ValueError("what should be a number is not, or is too large")
    return float(value)
