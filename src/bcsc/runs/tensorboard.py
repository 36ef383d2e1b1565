"""TensorBoard events, from the rows of a run."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bcsc.errors import MissingExtraError
from bcsc.training.history import EpochRow


class EventLog:
    """Writes each row once. It starts over with all rows of a continued run, and hides what was written before."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise MissingExtraError("TensorBoard events need tensorboard: pip install 'bcsc[tensorboard]'") from error
        self._open: Any = partial(SummaryWriter, str(folder / "tensorboard"), purge_step=1)
        self._writer: Any = None  # opened with the first row, when the folder is there
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
