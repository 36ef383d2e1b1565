"""TensorBoard events, from the rows of a run."""

from collections.abc import Sequence
from pathlib import Path

from bcsc.errors import MissingExtraError
from bcsc.training.history import EpochRow


def write_events(folder: Path, rows: Sequence[EpochRow]) -> None:
    """The newest row as scalars; after a resumption the events it replaces are hidden."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise MissingExtraError("TensorBoard events need tensorboard: pip install 'bcsc[tensorboard]'") from error
    if rows:
        row = rows[-1]
        with SummaryWriter(str(folder / "tensorboard"), purge_step=row.epoch) as writer:
            for name, value in row._asdict().items():
                if name != "epoch":
                    writer.add_scalar(name, value, row.epoch)
