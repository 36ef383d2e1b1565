"""A checkpoint: its file, which runs no code and tells what was changed, and what it must hold to be gone on from."""

import hashlib
import io
import math
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from bcsc.errors import BcscError, CheckpointError, StateMismatchError, in_short
from bcsc.optim.state_check import NO_CHOICES, checked_groups, is_safe, saved_position
from bcsc.training.history import EpochRow, row_of
from bcsc.training.rank_state import check_rank_states

if TYPE_CHECKING:
    from bcsc.training.trainer import Trainer

# Beside the state of the trainer. A checkpoint without them is of an earlier version.
RUN, DIGEST = "run", "sha256"


def checkpoint_content(state: Mapping[str, Any], run: str) -> memoryview:
    """The bytes of a checkpoint, with the configuration of its run and a digest of it all.

    In memory, so that a disk that fills up can say so in words of its own.
    """
    whole = {**state, RUN: run}
    file = io.BytesIO()
    torch.save({**whole, DIGEST: digest(whole)}, file)
    return file.getbuffer()


def unreadable_class_in(state: object) -> str | None:
    """A class whose objects can be saved but not read, as reading runs no code; None if all can be read."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    try:
        torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        return named[1] if named else "class that torch does not know"
    return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """One checkpoint, its checksums verified."""
    try:
        refuse_damaged_archive(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        refuse_oversized(state, path.stat().st_size)
        if not isinstance(state, dict):
            raise CheckpointError(f"{path} cannot be read: it holds {in_short(state)}, not a table.")
        if not {RUN, DIGEST}.isdisjoint(state) and state.pop(DIGEST, None) != digest(state):
            raise CheckpointError(f"{path} was changed after it was written.")
    except CheckpointError:
        raise
    except Exception as error:  # whatever a damaged or hostile file makes the readers raise
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}).") from error
    return state


def refuse_damaged_archive(path: Path) -> None:
    """Refuse a file with a wrong checksum, and one that would unpack to more than itself."""
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
            raise CheckpointError(f"{path} cannot be read: it is compressed.")
        damaged = archive.testzip()
        pickles = [archive.read(name) for name in archive.namelist() if name.endswith("data.pkl")]
    if any(asks_for_bytes(content) for content in pickles):
        raise CheckpointError(f"{path} cannot be read: it asks for memory that no checkpoint needs.")
    if damaged is not None:
        raise CheckpointError(f"{path} is damaged (in {damaged}).")


def asks_for_bytes(content: bytes) -> bool:
    """Whether a pickle makes a bytearray, the one thing that torch lets it make of any size."""
    words = (argument for opcode, argument, _ in pickletools.genops(content) if opcode.name == "GLOBAL")
    return any(str(argument).endswith(" bytearray") for argument in words)


def refuse_oversized(state: object, size: int) -> None:
    """Refuse tensors that claim more than a file of this size can hold, and those of other kinds than a run saves."""
    for leaf in leaves(state):
        if isinstance(leaf, Tensor):
            plain = type(leaf) in (Tensor, nn.Parameter) and leaf.layout == torch.strided and leaf.device.type == "cpu"
            if not plain or leaf.is_quantized or not leaf.nbytes <= leaf.untyped_storage().nbytes() <= size:
                raise CheckpointError("A tensor is not what it claims to be.")


def leaves(value: object) -> Iterator[object]:
    """All that is in nested tables and lists, keys included."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def digest(state: object) -> str:
    """SHA-256 over a nested state: structure, names, numbers and the bits of tensors."""
    total = hashlib.sha256()
    add_to_digest(total, state)
    return total.hexdigest()


def add_to_digest(total: "hashlib._Hash", value: object) -> None:
    """Go through the state in its order; every part is led by its kind and size, so that none passes for another."""
    if isinstance(value, Tensor):
        total.update(f"tensor {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        total.update(f"table {len(value)}\n".encode())
        for key, item in value.items():
            add_to_digest(total, key)
            add_to_digest(total, item)
    elif isinstance(value, set | frozenset):  # whose order is another in another process
        add_to_digest(total, sorted(map(repr, value)))
    elif isinstance(value, list | tuple):
        total.update(f"list {len(value)}\n".encode())
        for item in value:
            add_to_digest(total, item)
    else:
        text = repr(value)
        total.update(f"{type(value).__name__} {len(text)} {text}\n".encode())


class Progress(NamedTuple):
    """What a trainer takes from a saved state, beside what its optimizer takes."""

    model: dict[str, Any]
    rows: list[EpochRow]
    losses: Tensor
    seconds: float
    rank_states: list[dict[str, Tensor]] | None


def checked_progress(state: Mapping[str, Any], trainer: "Trainer") -> Progress:
    """What is in a saved state, if all of it fits the trainer; nothing is changed."""
    missing = [name for name in ("model", "optimizer", *Progress._fields) if name not in state]
    if missing:
        not_this_runs(f"it lacks {', '.join(missing)}")
    rows = checked_rows(state["rows"], trainer)
    losses, seconds, rank_states = state["losses"], state["seconds"], state["rank_states"]
    if not isinstance(losses, Tensor) or losses.dim() != 1 or not losses.is_floating_point():
        not_this_runs(f"its losses are {in_short(losses)}, not a list of numbers")
    if not is_safe(losses) or not bool(losses.isfinite().all()):
        not_this_runs("its losses are not finite")
    if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
        not_this_runs(f"its seconds are {in_short(seconds)}")
    check_position(state["optimizer"], len(rows), len(losses), trainer)
    # Before the first step the rate is the base's own. A checkpoint that names its run has been compared with it, and
    # some bases keep counts and estimates among their options.
    if len(rows) + len(losses) > 0 and RUN not in state:
        check_saved_options(state["optimizer"], trainer)
    if len(losses) > 0:
        check_rank_states(rank_states, trainer.model, trainer.plan.device)
    elif rank_states is not None:
        not_this_runs("it has states of ranks between two epochs")
    return Progress(checked_model(state["model"], trainer.model), rows, losses, seconds, rank_states)


def checked_model(saved: Any, model: nn.Module) -> dict[str, Any]:
    """The saved network, if it has the names, shapes and types of this one."""
    state = model.state_dict()
    if not isinstance(saved, Mapping) or saved.keys() != state.keys():
        not_this_runs("its network has other tensors than this one")
    for name, own in state.items():
        value = saved[name]
        same = type(value) is type(own)
        if isinstance(own, Tensor):
            same = isinstance(value, Tensor) and (value.shape, value.dtype) == (own.shape, own.dtype)
        if not same:
            not_this_runs(f"{name} of its network is not what it is in this one")
    state.update(saved)
    return state


def checked_rows(saved: Any, trainer: "Trainer") -> list[EpochRow]:
    """The measurements so far, if they can be those of this run."""
    plan, samples_per_epoch = trainer.plan, trainer.data.samples_per_epoch
    if not isinstance(saved, list) or len(saved) > plan.epochs:
        not_this_runs(f"its rows are {in_short(saved)}, not those of at most {plan.epochs} epochs")
    try:
        rows = [row_of(row) for row in saved]
    except (BcscError, TypeError) as error:
        not_this_runs(f"a row of it is none: {error}")
    for epoch, row in enumerate(rows):
        expected = (epoch + 1, (epoch + 1) * samples_per_epoch)
        if (row.epoch, row.gradient_evaluations) != expected or not math.isclose(
            row.learning_rate, plan.learning_rate(epoch)
        ):
            not_this_runs(f"row {epoch + 1} of it is not that of epoch {epoch + 1} of this run")
        if not all(map(math.isfinite, row)) or not 0 <= row.test_accuracy <= 100 or row.seconds < 0:
            not_this_runs(f"row {epoch + 1} of it holds what cannot be measured")
    return rows


def check_position(saved: Any, num_rows: int, num_losses: int, trainer: "Trainer") -> None:
    """Refuse an optimizer that stands elsewhere than the measurements say."""
    data = trainer.data
    epoch, step = saved_position(saved)
    steps = data.batches_per_epoch // data.batches_per_step
    if num_losses > 0:
        fits = (epoch, step * data.batches_per_step) == (num_rows, num_losses) and step <= steps
        fits = fits and num_rows < trainer.plan.epochs
    else:
        fits = (epoch, step) == ((num_rows - 1, steps) if num_rows else (0, 0))
    if not fits:
        not_this_runs(f"it stands in epoch {epoch}, step {step}, with {num_rows} rows and {num_losses} losses")
    if step % data.division.steps_at_once:
        not_this_runs(f"{data.division.steps_at_once} ranks cannot go on after {step} inner steps of an epoch")


def check_saved_options(saved: Mapping[str, Any], trainer: "Trainer") -> None:
    """Refuse an optimizer with other options than this run's, the learning rate of its epoch included."""
    groups = trainer.optimizer.param_groups
    rate = trainer.plan.learning_rate(saved_position(saved)[0])
    for own, group in zip(groups, checked_groups(groups, saved.get("param_groups")), strict=True):
        for name in own.keys() & group.keys() - {"params", *NO_CHOICES}:
            value = rate if name == "lr" else own[name]
            if not is_same(group[name], value):
                not_this_runs(f"{name} was {in_short(group[name])}, is {in_short(value)}")


def is_same(saved: Any, own: Any) -> bool:
    """Whether two options are the same; a rate may have been rounded otherwise by an earlier version."""
    if type(saved) is float and type(own) is float:
        return math.isclose(saved, own)
    return in_short(saved) == in_short(own)


def not_this_runs(reason: str) -> NoReturn:
    """Say that a state is another run's, and why."""
    raise StateMismatchError(f"The saved state does not fit this run: {reason}.")
