"""One run, from its description to its folder: begin, continue, interrupt, finish."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from bcsc.data.outliers import Corruption
from bcsc.distributed.collectives import Ranks
from bcsc.distributed.process_group import process_group
from bcsc.errors import InvalidArgumentError, check_at_least
from bcsc.runs.batches import describe_own
from bcsc.runs.build import build_own_run, build_run, check_device
from bcsc.runs.folder import RunFolder
from bcsc.runs.recorder import Recorder, ended_run
from bcsc.runs.spec import RunSpec, check_settings
from bcsc.runs.watch import EventLog, terminal_watcher
from bcsc.training.history import EpochRow
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
    """Train as ``spec`` says, in the folder ``out``: begin, or continue what is there, or return what is finished.

    Where training diverged, ``Diverged`` is raised, also when the same is asked for again.
    """
    if not isinstance(spec, RunSpec):
        raise InvalidArgumentError(f"run takes a RunSpec, got {type(spec).__name__}. Build one: RunSpec(data=...).")
    options, folder = checked_options(options), RunFolder(checked_folder(out))
    with process_group() as ranks, torch_settings(spec), watching(options, spec.epochs, ranks) as watcher:
        finished = None if options.restart else ranks.from_first(lambda: ended_run(folder, spec))
        if finished is not None:
            watcher.say(f"{folder.path} is finished already; nothing to do.")
            return Result(list(finished.rows), asdict(finished.summary))
        trainer, dataset = build_run(spec, options.checkpoint_every, ranks)
        return carry_out(trainer, folder, spec, options, watcher=watcher, corruption=dataset.corruption)


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
    gives the same samples again. Another network, loss or data set is refused there, as far as they can be told apart
    (``bcsc.runs.batches``). The model is trained in place.
    """
    options, folder = checked_options(options), RunFolder(checked_folder(out))
    for name in ("data", "model", "dropout", "outliers", "subset", "validation"):
        if name in settings:
            raise InvalidArgumentError(f"{name}= has no meaning for a network and data of your own. Leave it out.")
    check_settings(settings)
    if not isinstance(model, nn.Module):
        raise InvalidArgumentError(f"The model must be a torch.nn.Module, got {type(model).__name__}.")
    spec = RunSpec(**describe_own(model, train_set, test_set, loss_fn), **settings)
    with process_group() as ranks, torch_settings(spec), watching(options, spec.epochs, ranks) as watcher:
        trainer = build_own_run(
            spec,
            model,
            sets=(train_set, test_set),
            loss_fn=loss_fn,
            checkpoint_every=options.checkpoint_every,
            ranks=ranks,
        )
        return carry_out(trainer, folder, spec, options, watcher=watcher)


def checked_options(options: RunOptions | None) -> RunOptions:
    """The options, or those by default."""
    if options is not None and not isinstance(options, RunOptions):
        raise InvalidArgumentError(
            f"options must be RunOptions, got {type(options).__name__}. Build them: RunOptions(restart=True)."
        )
    return options or RunOptions()


def checked_folder(out: Path | str) -> Path:
    """The run's folder, which has a name."""
    if not isinstance(out, str | Path) or not str(out) or "\0" in str(out):
        raise InvalidArgumentError(f"out must be the path of the run's folder, got {out!r}.")
    return Path(out)


def carry_out(
    trainer: Trainer,
    folder: RunFolder,
    spec: RunSpec,
    options: RunOptions,
    *,
    watcher: Watcher,
    corruption: Corruption | None = None,
) -> Result:
    """Train in the folder, and give what came out."""
    events = EventLog(folder.path) if options.tensorboard else None  # on every rank, so that all refuse alike
    recorder = Recorder(folder, spec, trainer, watcher=watcher, events=events, corruption=corruption)
    try:
        summary = recorder.run(restart=options.restart)
    except Exception as error:
        if spec.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
            raise InvalidArgumentError(
                f"The network cannot be compiled here: {reason}. Leave --compile out."
            ) from error
        raise
    return Result(trainer.rows, asdict(summary), trainer.model)


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
    threads, deterministic = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    try:
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        torch.use_deterministic_algorithms(spec.deterministic)
        with torch.random.fork_rng(devices=accelerators, device_type=device.type if accelerators else "cuda"):
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(deterministic)
