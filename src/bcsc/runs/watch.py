"""Who is told how a run goes: nobody, a log, a person at a terminal, or TensorBoard."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from torch import Tensor

from bcsc.errors import MissingExtraError
from bcsc.training.history import EpochRow, duration, per_second
from bcsc.training.watcher import Watcher

if TYPE_CHECKING:
    from rich.progress import Progress

SECONDS_BETWEEN_UPDATES = 0.1
SHORT_RUN_SECONDS = 60


class PlainWatcher(Watcher):
    """One line per epoch, for pipes and logs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self._estimated = False

    def end_epoch(self, row: EpochRow) -> None:
        """One line of measurements and the time that is left at this pace."""
        left = (self.epochs - row.epoch) * row.seconds
        self.say(
            f"epoch {row.epoch}/{self.epochs}  rate {row.learning_rate:g}  "
            f"training loss {row.train_loss:.4f} +- {row.train_loss_std:.4f}  test loss {row.test_loss:.4f}  "
            f"accuracy {row.test_accuracy:.2f} %  {row.images_per_second:,.0f} images/s  {duration(left)} left"
        )

    def estimate(self, seconds: float) -> None:
        """Say once what a long run will take."""
        if not self._estimated and seconds > SHORT_RUN_SECONDS:
            self.say(f"This will take about {duration(seconds)}.")
        self._estimated = True

    def say(self, text: str) -> None:
        """A line on standard output, at once."""
        print(text, flush=True)


class LiveWatcher(PlainWatcher):
    """Progress bars for the epoch and the run, and the lines of the log above them."""

    def __init__(self, epochs: int) -> None:
        super().__init__(epochs)
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn()
        )
        self._run = self._progress.add_task("run", total=epochs, note="")
        self._epoch = self._progress.add_task("epoch", note="")
        self._step, self._steps = 0, 1
        self._epochs_done = 0
        self._updated = 0.0
        self._began_at, self._began = 0, 0.0
        self._samples_per_step = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin_epoch(self, epoch: int, step: int, steps: int, samples_per_step: float) -> None:
        """Start the epoch's bar over."""
        self._step, self._steps, self._epochs_done = step, steps, epoch
        self._began_at, self._began, self._samples_per_step = step, time.monotonic(), samples_per_step
        self._progress.reset(self._epoch, total=steps, completed=step, description=f"epoch {epoch + 1}")

    def after_step(self, loss: Tensor) -> None:
        """Move the bars, a few times a second."""
        self._step += 1
        if time.monotonic() - self._updated > SECONDS_BETWEEN_UPDATES:
            self._updated = time.monotonic()
            done = self._epochs_done + self._step / self._steps
            samples = (self._step - self._began_at) * self._samples_per_step
            note = f"loss {loss.item():.3f}  {per_second(samples, self._updated - self._began):,.0f} images/s"
            self._progress.update(self._epoch, completed=self._step, note=note)
            self._progress.update(self._run, completed=done)

    def end_epoch(self, row: EpochRow) -> None:
        """The line of the epoch, and its accuracy beside the run's bar."""
        super().end_epoch(row)
        self._progress.update(self._epoch, completed=self._steps)
        self._progress.update(self._run, completed=row.epoch, note=f"accuracy {row.test_accuracy:.2f} %")

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._progress.console.print(text, highlight=False, markup=False)


class FewLines(PlainWatcher):
    """One line for every ten epochs and for the last, with the run's name."""

    def __init__(self, epochs: int, name: str) -> None:
        super().__init__(epochs)
        self._name = name

    def end_epoch(self, row: EpochRow) -> None:
        """Where the run is, in short."""
        if row.epoch % 10 == 0 or row.epoch == self.epochs:
            self.say(f"{self._name}: epoch {row.epoch}/{self.epochs}  accuracy {row.test_accuracy:.2f} %")


class OneBar(Watcher):
    """One of several bars, and no lines."""

    def __init__(self, progress: "Progress", epochs: int, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=epochs, note="")

    def end_epoch(self, row: EpochRow) -> None:
        """Move the bar, and put the accuracy beside it."""
        self._progress.update(self._task, completed=row.epoch, note=f"accuracy {row.test_accuracy:.2f} %")

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._progress.console.print(text, highlight=False, markup=False)


@contextmanager
def folded_watchers(epochs: Mapping[str, int]) -> Iterator[dict[str, Watcher]]:
    """A watcher for each of several runs: bars below each other at a terminal, a line per ten epochs elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty() or find_spec("rich") is None:
        yield {name: FewLines(number, name) for name, number in epochs.items()}
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns) as progress:
        yield {name: OneBar(progress, number, name) for name, number in epochs.items()}


class EventLog:
    """TensorBoard events: each row once.

    It starts over with all rows of a continued run, and hides what was written before.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise MissingExtraError("TensorBoard events need tensorboard: pip install 'bcsc[tensorboard]'") from error
        self._open = partial(SummaryWriter, str(folder / "tensorboard"), purge_step=1)
        self._writer: SummaryWriter | None = None  # opened with the first row, when the folder is there
        self._num_written = 0

    def write(self, rows: Sequence[EpochRow]) -> None:
        """The rows that are new, as scalars by epoch."""
        for row in rows[self._num_written :]:
            self._writer = self._writer or self._open()
            for name, value in row._asdict().items():
                if name != "epoch":
                    self._writer.add_scalar(name, value, row.epoch)
            self._writer.flush()
        self._num_written = len(rows)


def terminal_watcher(epochs: int) -> Watcher:
    """Bars at a terminal, or plain lines where rich is not installed; nothing elsewhere."""
    if sys.stdout is None or not sys.stdout.isatty():
        return Watcher()
    try:
        return LiveWatcher(epochs)
    except ImportError:
        return PlainWatcher(epochs)


def watcher_for(epochs: int) -> Watcher:
    """As at a terminal, and plain lines for pipes and logs."""
    return terminal_watcher(epochs) if sys.stdout is not None and sys.stdout.isatty() else PlainWatcher(epochs)
