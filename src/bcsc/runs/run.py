"""One run, from its description to its folder: begin, continue, interrupt, finish."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from bcsc.data.outliers import Corruption
from bcsc.distributed.agreement import check_agreement
from bcsc.distributed.collectives import Ranks
from bcsc.distributed.process_group import process_group
from bcsc.errors import Diverged, Interrupted, InvalidArgumentError, StateMismatchError, check_at_least
from bcsc.runs.batches import length_of
from bcsc.runs.build import build_own_run, build_run, check_device
from bcsc.runs.folder import ORIGIN, OUTLIERS, SUMMARY, RunFolder
from bcsc.runs.origin import describe_origin, now
from bcsc.runs.spec import RunSpec, check_settings, spec_to_toml
from bcsc.runs.tensorboard import EventLog
from bcsc.runs.watch import terminal_watcher
from bcsc.training.checkpoint import CheckpointError, load_checkpoint, save_checkpoint, set_damaged_aside
from bcsc.training.history import EpochRow, accuracy_summary
from bcsc.training.trainer import LossFunction, Trainer
from bcsc.training.watcher import Watcher


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; nothing here changes what it computes.

    Attributes:
        restart: begin anew; what is in the folder is kept aside.
        checkpoint_every: save after so many inner steps too, not only after every epoch.
        tensorboard: write TensorBoard events.
        watcher: who is told how it goes; by default bars where there is a terminal, and nobody elsewhere.
    """

    restart: bool = False
    checkpoint_every: int | None = None
    tensorboard: bool = False
    watcher: Watcher | None = None

    def __post_init__(self) -> None:
        if self.checkpoint_every is not None:
            check_at_least("checkpoint_every", self.checkpoint_every, 1)


@dataclass(frozen=True)
class Result:
    """What came out: a row per epoch and the summary, as in the run folder, and the trained network.

    ``model`` is missing only where ``run`` was called for a folder that had come to its end before.
    """

    history: list[EpochRow]
    summary: dict[str, Any]
    model: nn.Module | None = None


def run(spec: RunSpec, out: Path | str, options: RunOptions | None = None) -> Result:
    """Train as ``spec`` says, in the folder ``out``: begin, or continue what is there, or return what is finished."""
    if not isinstance(spec, RunSpec):
        raise InvalidArgumentError(f"run takes a RunSpec, got {type(spec).__name__}. Build one: RunSpec(data=...).")
    options, folder = checked_options(options), RunFolder(checked_folder(out))
    with process_group() as ranks, torch_settings(spec), watching(options, spec.epochs, ranks) as watcher:
        finished = None if options.restart else ranks.from_first(lambda: finished_result(folder, spec))
        if finished is not None:
            watcher.say(f"{folder.path} is {finished.summary['state']} already; nothing to do.")
            return finished
        trainer, dataset = build_run(spec, options.checkpoint_every, ranks)
        return Recorder(folder, spec, trainer, options, watcher=watcher, corruption=dataset.corruption).run()


def train(
    model: nn.Module,
    train_set: Dataset[Any],
    test_set: Dataset[Any],
    *,
    out: Path | str,
    loss_fn: LossFunction = F.cross_entropy,
    options: RunOptions | None = None,
    **settings: Any,
) -> Result:
    """Train any network on any ``Dataset`` of (input, label); ``settings`` are those of ``RunSpec``.

    The folder works as for ``bcsc train``: the same call again continues an interrupted run to the bit, if the data set
    gives the same samples again. The model is trained in place.
    """
    options, folder = checked_options(options), RunFolder(checked_folder(out))
    for name in ("data", "model", "dropout", "outliers", "subset"):
        if name in settings:
            raise InvalidArgumentError(f"{name}= has no meaning for a network and data of your own. Leave it out.")
    check_settings(settings)
    if not isinstance(model, nn.Module):
        raise InvalidArgumentError(f"The model must be a torch.nn.Module, got {type(model).__name__}.")
    spec = RunSpec(**describe_own(model, train_set, loss_fn), **settings)
    with process_group() as ranks, torch_settings(spec), watching(options, spec.epochs, ranks) as watcher:
        trainer = build_own_run(
            spec,
            model,
            sets=(train_set, test_set),
            loss_fn=loss_fn,
            checkpoint_every=options.checkpoint_every,
            ranks=ranks,
        )
        return Recorder(folder, spec, trainer, options, watcher=watcher).run()


def checked_options(options: RunOptions | None) -> RunOptions:
    """The options, or those by default."""
    if options is not None and not isinstance(options, RunOptions):
        raise InvalidArgumentError(
            f"options must be RunOptions, got {type(options).__name__}. Build them: RunOptions(restart=True)."
        )
    return options or RunOptions()


def checked_folder(out: Path | str) -> Path:
    """The run's folder, which has a name."""
    if not isinstance(out, str | Path) or not str(out):
        raise InvalidArgumentError(f"out must be the path of the run's folder, got {out!r}.")
    return Path(out)


def describe_own(model: nn.Module, train_set: Dataset[Any], loss_fn: LossFunction) -> dict[str, Any]:
    """What tells a run of one's own from another in the same folder."""
    num_parameters = sum(p.numel() for p in model.parameters())
    loss = getattr(loss_fn, "__name__", type(loss_fn).__name__)
    return {
        "data": f"{type(train_set).__name__} of {length_of(train_set)} samples",
        "model": f"{type(model).__name__} of {num_parameters} parameters, {loss}",
    }


def finished_result(folder: RunFolder, spec: RunSpec) -> Result | None:
    """What a run that has come to its end has left; a folder of another run is refused."""
    folder.check_same_run(spec)
    summary, rows = folder.summary(), folder.rows()
    if summary is None or rows is None or summary.get("state") not in ("finished", "diverged"):
        return None
    return Result(rows, summary)


class Recorder:
    """Keeps the folder of a run in step with its trainer. The checkpoint leads; all other files follow from it.

    Where there are several ranks, each has a recorder; the first reads and writes, and tells the others.
    """

    def __init__(
        self,
        folder: RunFolder,
        spec: RunSpec,
        trainer: Trainer,
        options: RunOptions,
        *,
        watcher: Watcher,
        corruption: Corruption | None = None,
    ) -> None:
        self.folder, self.spec, self.trainer, self.options = folder, spec, trainer, options
        self.watcher, self.corruption = watcher, corruption
        self.ranks = trainer.ranks
        self.events = EventLog(folder.path) if options.tensorboard and trainer.ranks.rank == 0 else None

    def run(self) -> Result:
        """Train to the end, or until something stops it; the folder says which."""
        self._check_agreement("At the start")
        with ExitStack() as stack:
            self.ranks.from_first(lambda: self._take_folder(stack))
            finished = self.ranks.from_first(lambda: finished_result(self.folder, self.spec))
            state = self.ranks.from_first(self._read_checkpoint)
            if finished is not None:
                self._restore(state or {})
                return replace(finished, model=self.trainer.model)
            self._begin_or_continue(state)
            try:
                with stop_asked_by_signal() as stop_asked:
                    self.trainer.run(self._save, stop_asked, self.watcher)
            except Interrupted as interruption:
                self._end("interrupted", str(interruption))
                raise
            except Diverged as divergence:
                self._end("diverged", str(divergence))
                raise
            return Result(self.trainer.rows, self._end("finished"), self.trainer.model)

    def _check_agreement(self, when: str) -> None:
        optimizer, trainer = self.trainer.optimizer, self.trainer
        words = [spec_to_toml(self.spec), trainer.epoch, optimizer.inner_step, optimizer.block_at(optimizer.inner_step)]
        check_agreement(self.ranks, when, words, trainer.model.parameters())

    def _take_folder(self, stack: ExitStack) -> None:
        if self.options.restart and (aside := self.folder.set_aside()):
            self.watcher.say(f"The old folder is kept as {aside}.")
        stack.enter_context(self.folder.locked())

    def _read_checkpoint(self) -> dict[str, Any] | None:
        state, complaint = load_checkpoint(self.folder.path)
        if complaint:
            self.watcher.say(complaint)
            set_damaged_aside(self.folder.path)
        return state

    def _begin_or_continue(self, state: dict[str, Any] | None) -> None:
        if state is not None:
            self._restore(state)
            self._check_agreement("After loading the checkpoint")
        self.ranks.from_first(lambda: self._write_beginning(resumed=state is not None))
        if state is None:
            self._save()

    def _write_beginning(self, resumed: bool) -> None:
        self.folder.write_spec(self.spec)
        origin = describe_origin(self.spec.device, self.ranks.size)
        if not resumed:
            self._write_outliers()
            self.folder.write_json(ORIGIN, origin)
            return
        before = self.folder.origin() or origin
        self.folder.write_json(ORIGIN, {**origin, "started": before["started"], "resumed": before["resumed"] + 1})
        self.folder.write_rows(self.trainer.rows)
        self._write_summary("running")
        self.watcher.say(f"Continuing {self.folder.path} in epoch {self.trainer.epoch + 1}.")

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.trainer.load_state_dict(state)
        except (RuntimeError, KeyError, TypeError, StateMismatchError) as error:
            reason = str(error).splitlines()[0]
            raise CheckpointError(
                f"The checkpoint in {self.folder.path} is not of this run ({reason}). "
                "Take another folder, or --restart to keep this one aside."
            ) from error

    def _save(self) -> None:
        self._check_agreement(
            f"In epoch {self.trainer.epoch + 1}, before inner step {self.trainer.optimizer.inner_step}"
        )
        state = self.trainer.state_dict()
        self.ranks.from_first(lambda: self._write(state))

    def _write(self, state: dict[str, Any]) -> None:
        save_checkpoint(self.folder.path, state)
        self.folder.write_rows(self.trainer.rows)
        self._write_summary("running")
        if self.events is not None:
            self.events.write(self.trainer.rows)

    def _end(self, state: str, message: str | None = None) -> dict[str, Any]:
        """Write down how the run ended; the summary."""

        def write() -> dict[str, Any]:
            self._write_summary(state, message)
            return self.folder.summary() or {}

        return self.ranks.from_first(write)

    def _write_summary(self, state: str, message: str | None = None) -> None:
        rows, corruption = self.trainer.rows, self.corruption
        self.folder.write_json(
            SUMMARY,
            {
                "state": state,
                "epochs": self.spec.epochs,
                "epochs_done": len(rows),
                "test_accuracy": accuracy_summary(rows, self.spec.epochs),
                "gradient_evaluations": rows[-1].gradient_evaluations if rows else 0,
                "seconds": sum(row.seconds for row in rows),
                "outliers": outlier_counts(corruption) if corruption else None,
                "message": message,
            },
        )
        if state != "running":
            self.folder.write_json(ORIGIN, {**(self.folder.origin() or {}), "ended": now()})

    def _write_outliers(self) -> None:
        if self.corruption is not None:
            indices = self.corruption.indices.tolist()
            self.folder.write_json(OUTLIERS, {**outlier_counts(self.corruption), "indices": indices})


def outlier_counts(corruption: Corruption) -> dict[str, Any]:
    """How much was asked for and how much was done."""
    return {
        "requested": corruption.requested,
        "realised": corruption.realised,
        "count": len(corruption.indices),
    }


@contextmanager
def watching(options: RunOptions, epochs: int, ranks: Ranks) -> Iterator[Watcher]:
    """The watcher that was asked for, which its owner opens and closes; else bars where a person can see them."""
    if options.watcher is not None:
        yield options.watcher
        return
    with terminal_watcher(epochs) if ranks.rank == 0 else Watcher() as watcher:
        yield watcher


@contextmanager
def torch_settings(spec: RunSpec) -> Iterator[None]:
    """Threads, determinism and the global generators, put back afterwards."""
    device = check_device(spec.device)
    accelerators = [] if device.type == "cpu" else [device]
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        torch.use_deterministic_algorithms(spec.deterministic)
        with torch.random.fork_rng(devices=accelerators):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


@contextmanager
def stop_asked_by_signal() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a question answered between two steps; the second one acts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = threading.Event()

    def ask(number: int, _frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
