"""The recorder: keeps the folder of a run in step with its trainer, from the beginning to the end or a stop."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from bcsc.data.outliers import Corruption
from bcsc.distributed.agreement import check_agreement
from bcsc.errors import (
    BcscError,
    CheckpointError,
    DamagedRunError,
    Diverged,
    Interrupted,
    StateMismatchError,
    in_one_line,
)
from bcsc.origin import describe_origin, now
from bcsc.runs.folder import WAY_OUT, RunFolder
from bcsc.runs.record import RunRecord, RunState, Summary, spec_from_text, spec_to_text, summarise
from bcsc.runs.spec import RunSpec, differences, spec_to_toml
from bcsc.runs.watch import EventLog
from bcsc.training.checkpoint import RUN, checkpoint_content, read_checkpoint
from bcsc.training.trainer import Trainer
from bcsc.training.watcher import Watcher


def ended_run(folder: RunFolder, spec: RunSpec) -> RunRecord | None:
    """The run in the folder, if it is finished; another run is refused, and one that diverged says so again."""
    folder.check_same_run(spec)
    try:
        record = folder.read()
    except DamagedRunError:
        return None  # absent, or to be made anew from the checkpoint
    if record.summary.state == "diverged":
        raise Diverged(record.summary.message or f"The run in {folder.path} diverged.")
    return record if record.is_finished else None


def refuse_other_run(state: Mapping[str, Any], spec: RunSpec) -> None:
    """Refuse a checkpoint of another configuration, naming the differences; those of earlier versions do not tell."""
    if RUN not in state:
        return
    try:
        changed = differences(spec_from_text(state[RUN]), spec)
    except (BcscError, ValueError, TypeError) as error:
        raise StateMismatchError(f"Its configuration cannot be read: {error}") from error
    if changed:
        raise StateMismatchError(f"It is of another run: {'; '.join(changed)}.")


def num_rows(state: Mapping[str, Any]) -> int | None:
    """After how many epochs a checkpoint was made, if it says so."""
    rows = state.get("rows")
    return len(rows) if isinstance(rows, list) else None


class Recorder:
    """Keeps the folder of a run in step with its trainer. The checkpoint leads; all other files follow from it.

    Where there are several ranks, each has a recorder; the first reads and writes, and tells the others.
    """

    def __init__(
        self,
        folder: RunFolder,
        spec: RunSpec,
        trainer: Trainer,
        *,
        watcher: Watcher,
        events: EventLog | None = None,
        corruption: Corruption | None = None,
    ) -> None:
        self.folder, self.spec, self.trainer = folder, spec, trainer
        self.watcher, self.events, self.corruption = watcher, events, corruption
        self.ranks = trainer.ranks

    def run(self, *, restart: bool = False) -> Summary:
        """Train to the end, or until something stops it; the folder says which."""
        self._check_agreement("At the start")
        with ExitStack() as stack:
            self.ranks.from_first(lambda: self._take_folder(stack, restart))
            ended = self.ranks.from_first(lambda: ended_run(self.folder, self.spec))
            state = self.ranks.from_first(self._read_checkpoint)
            if ended is not None and state is not None and num_rows(state) == ended.summary.epochs_done:
                self._restore(state)
                self.watcher.say(f"{self.folder.path} is finished already; nothing to do.")
                return ended.summary
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
            return self._end("finished")

    def _check_agreement(self, when: str) -> None:
        optimizer, trainer = self.trainer.optimizer, self.trainer
        words = [spec_to_toml(self.spec), trainer.epoch, optimizer.inner_step, optimizer.block_at(optimizer.inner_step)]
        check_agreement(self.ranks, when, words, trainer.model.parameters())

    def _take_folder(self, stack: ExitStack, restart: bool) -> None:
        if restart and (aside := self.folder.set_aside()):
            self.watcher.say(f"The old folder is kept as {aside}.")
        stack.enter_context(self.folder.locked())

    def _read_checkpoint(self) -> dict[str, Any] | None:
        state, complaint = self.folder.read_checkpoint(read_checkpoint)
        if complaint:
            self.watcher.say(complaint)
            self.folder.set_damaged_checkpoint_aside()
        if state is None and (epochs := self.folder.epochs_done()):
            raise CheckpointError(f"{self.folder.path} holds {epochs} epochs, but no checkpoint of them. {WAY_OUT}")
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
        self._write_outliers()
        origin = describe_origin(self.spec.device, self.ranks.size)
        if not resumed:
            self.folder.write_origin(origin)
            return
        before = self.folder.origin() or origin
        self.folder.write_origin({**origin, "started": before["started"], "resumed": before["resumed"] + 1})
        self.folder.write_rows(self.trainer.rows)
        self._write_summary("running")
        if self.trainer.epoch == self.spec.epochs:
            self.watcher.say(f"{self.folder.path} is finished; its files are written anew.")
        else:
            self.watcher.say(f"Continuing {self.folder.path} in epoch {self.trainer.epoch + 1}.")

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            refuse_other_run(state, self.spec)
            self.trainer.load_state_dict(state)
        except StateMismatchError as error:
            raise CheckpointError(
                f"The checkpoint in {self.folder.path} is not of this run. {in_one_line(error)} {WAY_OUT}"
            ) from error

    def _save(self) -> None:
        self._check_agreement(f"After {self.trainer.epoch} epochs, at inner step {self.trainer.optimizer.inner_step}")
        state = self.trainer.state_dict()
        self.ranks.from_first(lambda: self._write(state))

    def _write(self, state: dict[str, Any]) -> None:
        self.folder.write_checkpoint(checkpoint_content(state, spec_to_text(self.spec)))
        self.folder.write_rows(self.trainer.rows)
        self._write_summary("running")
        if self.events is not None:
            self.events.write(self.trainer.rows)

    def _end(self, state: RunState, message: str | None = None) -> Summary:
        """Write down how the run ended; the summary."""
        return self.ranks.from_first(lambda: self._write_end(state, message))

    def _write_end(self, state: RunState, message: str | None) -> Summary:
        origin = self.folder.origin() or describe_origin(self.spec.device, self.ranks.size)
        self.folder.write_origin({**origin, "ended": now()})
        return self._write_summary(state, message)

    def _write_summary(self, state: RunState, message: str | None = None) -> Summary:
        outliers = outlier_counts(self.corruption) if self.corruption else None
        summary = summarise(self.spec, self.trainer.rows, state, outliers=outliers, message=message)
        self.folder.write_summary(summary)
        return summary

    def _write_outliers(self) -> None:
        if self.corruption is not None:
            indices = self.corruption.indices.tolist()
            self.folder.write_outliers({**outlier_counts(self.corruption), "indices": indices})


def outlier_counts(corruption: Corruption) -> dict[str, Any]:
    """How much was asked for and how much was done."""
    return {
        "requested": corruption.requested,
        "realised": corruption.realised,
        "count": len(corruption.indices),
    }


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
