"""How far a campaign is: a bar on a terminal, lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol

STEP = 0.1  # without a terminal, one line for every such share of the work


class Board(Protocol):
    """Where a campaign tells of itself."""

    def say(self, line: str) -> None:
        """Something that happened."""

    def show(self, share: float, label: str) -> None:
        """The share of the work that is done, between 0 and 1."""


class Lines:
    """Plain lines, for logs."""

    def __init__(self) -> None:
        self.share, self.next_share = 0.0, STEP

    def say(self, line: str) -> None:
        print(line, flush=True)

    def show(self, share: float, label: str) -> None:
        if share < self.share:  # other runs
            self.next_share = STEP
        if share >= self.next_share:
            self.say(f"{share:.0%} of the work, {label}")
            self.next_share = share + STEP
        self.share = share


@contextmanager
def board() -> Iterator[Board]:
    """A bar where rich can draw one, else plain lines."""
    if not sys.stdout.isatty() or find_spec("rich") is None:
        yield Lines()
        return
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    label = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
    times = (TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
    with Progress(BarColumn(20), TaskProgressColumn(), *times, label) as progress:
        task = progress.add_task("starting", total=1.0)

        class Bar:
            def say(self, line: str) -> None:
                progress.console.print(line, highlight=False, markup=False)

            def show(self, share: float, label: str) -> None:
                progress.update(task, completed=share, description=label)

        yield Bar()
