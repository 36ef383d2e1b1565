"""What a rank does not share with the others: the state of its generators, and BatchNorm's running statistics."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bcsc.distributed.block_gradients import packed, unpack_
from bcsc.distributed.collectives import Ranks
from bcsc.errors import StateMismatchError, in_short


def float_buffers(model: nn.Module) -> list[Tensor]:
    """What a network keeps beside its parameters and a rank learns from its own part: BatchNorm's statistics."""
    return [buffer for buffer in model.buffers() if buffer.is_floating_point()]


def average_buffers(model: nn.Module, ranks: Ranks) -> None:
    """Give every rank the mean of all ranks' buffers."""
    buffers = float_buffers(model)
    if buffers and not ranks.alone:
        unpack_(mean_of(ranks.gather(packed(buffers))), buffers)


def mean_of(buffers: Sequence[Tensor]) -> Tensor:
    """The mean; a number that all ranks have stays as it is, where a sum and a quotient may round it."""
    stacked = torch.stack(list(buffers))
    return torch.where((stacked == stacked[0]).all(dim=0), stacked[0], stacked.mean(dim=0))


def rank_states(model: nn.Module, ranks: Ranks, device: torch.device) -> list[dict[str, Tensor]]:
    """Of every rank what it does not share with the others: its random state and its buffers."""
    own = random_state(device)
    if (buffers := float_buffers(model)) and not ranks.alone:
        own["buffers"] = packed(buffers)
    gathered = {name: ranks.gather(tensor) for name, tensor in own.items()}
    # Copies: torch.set_rng_state crashes on a tensor that is a part of a larger one.
    return [{name: tensors[rank].cpu().clone() for name, tensors in gathered.items()} for rank in range(ranks.size)]


def restore_rank_state(
    model: nn.Module, states: Sequence[dict[str, Tensor]], ranks: Ranks, device: torch.device
) -> None:
    """Give a rank its own back; with another number of ranks than before, the mean buffers and no random state."""
    same = len(states) == ranks.size
    if same:
        set_random_state(states[ranks.rank], device)
    if "buffers" in states[0]:
        buffers = [state["buffers"] for state in states]
        mine = buffers[ranks.rank] if same else mean_of(buffers)
        unpack_(mine.to(device), float_buffers(model))


def check_rank_states(saved: Any, model: nn.Module, device: torch.device) -> None:
    """Refuse what could not be given back to a rank."""
    buffers = float_buffers(model)
    shared = {"buffers": packed(buffers)} if buffers and isinstance(saved, list) and len(saved) > 1 else {}
    names = random_state(device).keys() | shared.keys()
    if not isinstance(saved, list) or not saved or any(not isinstance(x, dict) or x.keys() != names for x in saved):
        raise StateMismatchError(f"The saved states of the ranks are {in_short(saved)}, not tables of {names}.")
    for name in names:
        for state in saved:
            fits = fits_as(state[name], shared[name]) if name in shared else is_random_state(state[name], name)
            if not fits:
                raise StateMismatchError(f"The saved state {name!r} of a rank is not one of this run.")


def fits_as(saved: Any, own: Tensor) -> bool:
    """Whether it is a tensor of the shape and type of another."""
    return isinstance(saved, Tensor) and (saved.shape, saved.dtype) == (own.shape, own.dtype)


def is_random_state(saved: Any, device: str) -> bool:
    """Whether a generator on the device takes it."""
    try:
        torch.Generator(device).set_state(saved.clone())
    except (RuntimeError, TypeError, AttributeError):
        return False
    return True


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of the global generators, which dropout draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        state[device.type] = torch.get_device_module(device).get_rng_state(device)
    return state


def set_random_state(state: dict[str, Tensor], device: torch.device) -> None:
    """Put the generators back."""
    torch.set_rng_state(state["cpu"])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(state[device.type], device)
