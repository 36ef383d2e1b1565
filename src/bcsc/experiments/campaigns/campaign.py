"""Many runs: skip the finished, continue the broken, survive a failure."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from bcsc.errors import BcscError, DamagedRunError, StateMismatchError
from bcsc.experiments.campaigns.progress import Board
from bcsc.experiments.experiment import passes_of
from bcsc.files import write_whole
from bcsc.runs.folder import RunFolder
from bcsc.runs.spec import RunSpec, spec_to_toml
from bcsc.training.history import duration

FEW = 2  # of the runs that are under way are named
State = Literal["finished", "diverged", "failed"]
STATE_OF_EXIT: dict[int, State] = {0: "finished", 3: "diverged"}


class CampaignError(BcscError, RuntimeError):
    """Runs failed without which the others cannot begin."""

    exit_code = 1


@dataclass(frozen=True)
class Job:
    """A run to carry out, and the folder of the campaign it belongs to."""

    name: str
    spec: RunSpec
    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "runs" / self.name

    @property
    def config(self) -> Path:
        return self.root / "configs" / f"{self.name}.toml"

    @property
    def log(self) -> Path:
        return self.root / "logs" / f"{self.name}.log"

    @property
    def cost(self) -> int:
        """Its share of the work: passes over the data."""
        return self.spec.epochs * passes_of({}, self.spec)

    def epochs_done(self) -> int:
        """How many epochs it has finished so far."""
        return RunFolder(self.folder).epochs_done()


class Engine(Protocol):
    """Where jobs are carried out; ``running`` are those that are under way."""

    running: list[Job]

    def carry_out(self, jobs: Sequence[Job]) -> Generator[list[tuple[Job, int]]]:
        """Several times a second, yield the jobs that have ended since, with their exit codes.

        Closing the generator interrupts what still runs and waits until it can be resumed.
        """
        ...

    def command(self, job: Job) -> str:
        """What a person would type to carry out one job."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How a job ended; ``skipped`` if it had ended so before."""

    job: Job
    state: State
    skipped: bool = False


def run_campaign(jobs: Sequence[Job], engine: Engine, board: Board) -> list[Outcome]:
    """Carry out what is not done yet. Interrupted, it leaves every run to be resumed by the same call."""
    outcomes = [Outcome(job, state, skipped=True) for job in jobs if (state := state_on_disk(job, board)) is not None]
    done = {outcome.job.name for outcome in outcomes}
    waiting = [job for job in jobs if job.name not in done]
    for job in waiting:
        for path in (job.config, job.log, job.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(job.config, spec_to_toml(job.spec).encode())
    if done:
        board.say(f"{len(done)} of {len(jobs)} runs were done before")
    with closing(engine.carry_out(waiting)) as events:
        for ended in events:
            for job, code in ended:
                outcomes.append(Outcome(job, STATE_OF_EXIT.get(code, "failed")))
                board.say(f"[{len(outcomes)}/{len(jobs)}] {job.name}: {how_it_ended(outcomes[-1])}")
            board.show(share_done(jobs, outcomes), f"{len(outcomes)}/{len(jobs)} runs{under_way(engine.running)}")
    return outcomes


def how_it_ended(outcome: Outcome) -> str:
    """In words: ``finished at 74.21 % in 12 min``."""
    try:
        summary = RunFolder(outcome.job.folder).read().summary
    except DamagedRunError:
        return outcome.state
    accuracy = f" at {summary.test_accuracy['final']:.2f} %" if summary.test_accuracy else ""
    return f"{outcome.state}{accuracy} in {duration(summary.seconds)}"


def under_way(running: Sequence[Job]) -> str:
    """In words, what is running and how far it is; of many the first few."""
    epochs = {job.name: (min(job.epochs_done() + 1, job.spec.epochs), job.spec.epochs) for job in running[:FEW]}
    names = [f"{name} (epoch {epoch}/{last})" for name, (epoch, last) in epochs.items()]
    more = [f"{len(running) - FEW} more"] if len(running) > FEW else []
    return f", running {', '.join(names + more)}" if names else ""


def state_on_disk(job: Job, board: Board) -> State | None:
    """How this very run has ended before, if it has; a folder that cannot be read is moved aside."""
    folder = RunFolder(job.folder)
    if not folder.exists():
        return None
    try:
        record = folder.read()
    except DamagedRunError as error:
        aside = folder.set_aside()
        board.say(f"{error} It is kept as {aside} and run again.")
        return None
    if record.spec != job.spec:
        return None
    return next((state for state in STATE_OF_EXIT.values() if state == record.summary.state), None)


def set_others_aside(jobs: Sequence[Job], board: Board) -> None:
    """Make room where something else was decided before: what is then another run is kept aside."""
    for job in jobs:
        folder = RunFolder(job.folder)
        try:
            folder.check_same_run(job.spec)
        except StateMismatchError:
            board.say(f"{job.folder} is of what was decided before; it is kept as {folder.set_aside()}.")


def share_done(jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> float:
    """The share of all the work that is done, between 0 and 1."""
    ended = {outcome.job.name for outcome in outcomes}
    shares = [1.0 if job.name in ended else min(1.0, job.epochs_done() / job.spec.epochs) for job in jobs]
    return sum(job.cost * share for job, share in zip(jobs, shares, strict=True)) / sum(job.cost for job in jobs)


def outcomes_in_words(outcomes: Sequence[Outcome], engine: Engine) -> str:
    """What a person wants to know at the end: how many, and for every failure why and how to try again."""
    counts = Counter(f"{outcome.state} before" if outcome.skipped else outcome.state for outcome in outcomes)
    lines = [", ".join(f"{count} {state}" for state, count in counts.items())]
    for outcome in outcomes:
        if outcome.state == "failed":
            lines += [
                f"failed: {outcome.job.name}: {last_line(outcome.job.log)}",
                f"  log:   {outcome.job.log}",
                f"  retry: {engine.command(outcome.job)}",
            ]
    return "\n".join(lines)


def last_line(log: Path) -> str:
    """The last words of a run."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it left no message"
