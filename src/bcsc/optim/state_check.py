"""What a saved state of a base optimizer must be, checked before anything is changed.

torch checks how many groups and parameters there are, and nothing else: a momentum of another shape would reach a
kernel, which reads and writes beyond its end. What a base keeps, only the base knows. So a twin of it is asked: it
makes a step without state, which shows the names, shapes and types, and then one with the saved state.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bcsc.errors import LARGEST, StateMismatchError, in_short
from bcsc.optim.bases.trial import ready_to_step, step_unnoticed, twin_of, without_trace

OWN_STATE = "block_cyclic"  # the entry of a state that is not the base's
NO_CHOICES = ("fused", "foreach", "capturable", "train_mode")  # ways to make the same step, and a mode: they may change
NAMES = ("params", "param_names")  # the first are checked apart, the others are for people

Groups = Sequence[Mapping[str, Any]]


def own_part(state_dict: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a saved state has of the position and the set-up, or a refusal where it is the base's alone."""
    own = state_dict.get(OWN_STATE)
    if not isinstance(own, Mapping):
        raise StateMismatchError(
            f"The state dict has no entry {OWN_STATE!r}, so it is not a BlockCyclic's. "
            "If it is the bare optimizer's, load it into optimizer.base. Helpers of torch.distributed.checkpoint "
            "drop the entry: save a bcsc.DistributedState(model, optimizer)."
        )
    return own


def check_base_state(base: Optimizer, saved: Mapping[str, Any]) -> None:
    """Refuse a state that the base could not go on with."""
    groups = checked_groups(base.param_groups, saved.get("param_groups"))
    parameters = [(p, group) for own, group in zip(base.param_groups, groups, strict=True) for p in own["params"]]
    entries = saved.get("state")
    if not isinstance(entries, Mapping):
        not_this_optimizers(f"its state is {in_short(entries)}, not a table")
    for key in entries:
        if not isinstance(key, str) and not (type(key) is int and 0 <= key < len(parameters)):
            not_this_optimizers(f"it has state of a parameter {in_short(key)}, there are {len(parameters)} from 0 on")
    for number, (p, group) in enumerate(parameters):
        check_entries(base, p, group, entries.get(number, {}), f"parameter {number}")
    refuse_shared_memory(entries, groups)


def num_stateful(state_dict: Mapping[str, Any]) -> int:
    """Of how many parameters a base has saved a state."""
    return sum(isinstance(entry, Mapping) and len(entry) > 0 for entry in state_dict.get("state", {}).values())


def check_complete(saved: Mapping[str, Any]) -> None:
    """Refuse a state of fewer parameters than were saved; one from before they were counted passes."""
    promised, found = saved[OWN_STATE].get("stateful", 0), num_stateful(saved)
    if type(promised) is not int or found < promised:
        not_this_optimizers(
            f"it has the state of {found} parameters, of {in_short(promised)} it was saved. "
            "torch.distributed.checkpoint loads only what is there already: "
            "load a bcsc.DistributedState(model, optimizer)"
        )


def check_shapes(saved: Any, shapes: list[list[int]]) -> None:
    """Refuse the state of a network whose parameters have other shapes."""
    if not (isinstance(saved, list) and all(map(are_whole, saved)) and saved == shapes):
        scalars = sum(torch.Size(shape).numel() for shape in shapes)
        first = ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes[:4])
        raise StateMismatchError(
            f"The saved parameters are not these, which are {len(shapes)} tensors of {scalars} scalars "
            f"({first}{', ...' if len(shapes) > 4 else ''}): another network. Build the network that was saved."
        )


def saved_position(saved: Any) -> tuple[int, int]:
    """The epoch and the inner step in it at which a state was taken."""
    own = saved.get(OWN_STATE) if isinstance(saved, Mapping) else None
    position: Any = (own.get("epoch"), own.get("step")) if isinstance(own, Mapping) else ()
    if not position or not all(type(part) is int and 0 <= part <= LARGEST for part in position):
        not_this_optimizers(f"it has no position but {in_short(position)}")
    epoch, step = position
    return epoch, step


def checked_groups(groups: Groups, saved: Any) -> Groups:
    """The saved groups, if they are of the same parameters and their options of the same kinds."""
    if not isinstance(saved, list | tuple) or len(saved) != len(groups):
        not_this_optimizers(f"it should have {len(groups)} groups of parameters, has {in_short(saved)}")
    first = 0
    for number, (own, group) in enumerate(zip(groups, saved, strict=True)):
        numbers = list(range(first, first + len(own["params"])))
        if not isinstance(group, Mapping) or not are_whole(group.get("params")) or group["params"] != numbers:
            not_this_optimizers(f"group {number} should be of the parameters {in_short(numbers)}, is {in_short(group)}")
        for name, value in own.items():
            if name not in NAMES and name in group and not fits_option(name, group[name], value):
                not_this_optimizers(f"{name} of group {number} was {in_short(group[name])}, is {in_short(value)}")
        first += len(numbers)
    return saved


def check_entries(base: Optimizer, p: Tensor, group: Mapping[str, Any], saved: Any, where: str) -> None:
    """Refuse a parameter's state that is not as the base makes it, or that it cannot step with."""
    if not isinstance(saved, Mapping):
        not_this_optimizers(f"the state of {where} is {in_short(saved)}, not a table")
    for name, value in saved.items():
        if not is_safe(value):
            not_this_optimizers(f"{in_short(name)} of {where} is {describe(value)}")
    made = state_after_a_step(base, p, group, {})
    if made is None:  # it will not step by itself at all, or not with the saved options
        own = next(own for own in base.param_groups if any(p is other for other in own["params"]))
        if state_after_a_step(base, p, own, {}) is not None:
            not_this_optimizers(f"{type(base).__name__} cannot step with the options of {where}")
        return
    for reason in misfits(saved, made, p.dtype) if saved else ():  # one that never had a gradient has no state
        not_this_optimizers(f"{where} {reason}")
    if state_after_a_step(base, p, group, saved) is None:
        not_this_optimizers(f"{type(base).__name__} cannot step with the state of {where}")


def misfits(saved: Mapping[str, Any], made: Mapping[str, Any], dtype: torch.dtype) -> Iterator[str]:
    """In which entries a parameter's state differs in kind from what the base makes."""
    for name, value in made.items():
        if name not in saved:
            yield f"lacks {name}"
        elif not fits(saved[name], value, dtype):
            yield f"has a {name} that is {describe(saved[name])}, should be {describe(value)}"
        elif name == "step" and not is_count(saved[name]):
            yield f"has a step that is {in_short(saved[name])}, not a count"


def state_after_a_step(
    base: Optimizer, p: Tensor, group: Mapping[str, Any], saved: Mapping[str, Any]
) -> Mapping[str, Any] | None:
    """What a twin of the base keeps of a twin of the parameter, after it was given the state; None if it fails."""
    if any(isinstance(value, Optimizer) for value in vars(base).values()):
        return None  # the twin would step through it to the parameters themselves
    stand_in = p.detach().clone()
    stand_in.grad = torch.zeros_like(stand_in)
    twin = twin_of(base, {id(p): stand_in})
    twin._optimizer_load_state_dict_pre_hooks, twin._optimizer_load_state_dict_post_hooks = OrderedDict(), OrderedDict()
    try:
        state = {0: {name: copied(value) for name, value in saved.items()}} if saved else {}
        with torch.no_grad(), without_trace(base):
            twin.load_state_dict({"state": state, "param_groups": [{**group, "params": [0]}]})
            ready_to_step(twin)
            step_unnoticed(twin)
    except Exception:  # whatever the base makes of a state that is not its own
        return None
    return dict(twin.state.get(stand_in, {}))


def copied(value: Any) -> Any:
    """A copy with memory of its own, also of tensors in lists and tables; of a tensor its own part of the memory."""
    return value.clone() if isinstance(value, Tensor) else deepcopy(value)


def fits(saved: Any, made: Any, dtype: torch.dtype) -> bool:
    """Whether a saved value can take the place of one that the base makes; loading may have cast it to ``dtype``."""
    if isinstance(made, Tensor):
        if isinstance(saved, Tensor) and saved.shape == made.shape and saved.dtype in (made.dtype, dtype):
            return True  # not looked into: of a DTensor this process may have no part
        return made.numel() == 1 and is_number(saved)  # the step count of an earlier torch
    if is_number(made):
        return is_number(saved)
    return made is None or type(saved) is type(made)


def fits_option(name: str, saved: Any, own: Any) -> bool:
    """Whether a saved option can take the place of the current one: choices stay, numbers may change."""
    if own is None or name in NO_CHOICES:
        return saved is None or isinstance(saved, bool | str) or is_number(saved)
    if isinstance(own, bool | str):
        return type(saved) is type(own) and bool(saved == own)
    if is_number(own):
        return is_number(saved)
    if isinstance(own, list | tuple) and isinstance(saved, list | tuple):
        return len(saved) == len(own) and all(fits_option(name, a, b) for a, b in zip(saved, own, strict=True))
    return type(saved) is type(own)


def is_number(value: Any) -> bool:
    """Whether it is a finite number, or a tensor of one."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and is_safe(value) and not value.is_complex() and math.isfinite(value.item())
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return abs(int(value)) <= LARGEST if isinstance(value, Integral) else math.isfinite(value)


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0 on, or a tensor of one."""
    return is_number(value) and float(value) >= 0 and float(value).is_integer()


def are_whole(value: Any) -> bool:
    """Whether it is a list of whole numbers."""
    return isinstance(value, list) and all(type(item) is int for item in value)


def is_safe(value: Any) -> bool:
    """Whether kernels may write into all tensors in it: each scalar has a place of its own, and there are no gaps."""
    if isinstance(value, Mapping):
        return all(is_safe(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(is_safe(item) for item in value)
    if not isinstance(value, Tensor) or type(value) not in (Tensor, nn.Parameter):
        return True  # no tensor, or one of a kind that keeps house by itself, such as DTensor
    if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
        return False
    room = 1
    for stride, length in sorted(zip(value.stride(), value.shape, strict=True)):
        if length != 1 and stride != room:
            return value.numel() == 0
        room *= length
    return True


def refuse_shared_memory(entries: Mapping[Any, Any], groups: Groups) -> None:
    """Refuse tensors of which a step with one would change another; only groups may share, such as a rate."""
    options = [group[name] for group in groups for name in group if name != "params"]
    spans = sorted([*spans_in(list(entries.values())), *set(spans_in(options))])
    for (_, end), (start, _) in pairwise(spans):
        if start < end:
            not_this_optimizers("two of its tensors share memory, so that a step with one would change the other")


def spans_in(value: Any) -> Iterator[tuple[int, int]]:
    """From where to where the tensors in it are in memory, without those that keep house by themselves."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from spans_in(item)
    elif isinstance(value, Tensor) and type(value) in (Tensor, nn.Parameter) and value.nbytes:
        yield value.data_ptr(), value.data_ptr() + value.nbytes


def describe(value: Any) -> str:
    """A tensor by its type and shape, anything else as it is."""
    if not isinstance(value, Tensor):
        return in_short(value)
    layout = "" if is_safe(value) else " in another layout"
    return f"{value.dtype} of shape {in_short(tuple(value.shape))}{layout}"


def not_this_optimizers(reason: str) -> NoReturn:
    """Say that a state is another optimizer's, and why."""
    raise StateMismatchError(f"The saved state is not of this optimizer: {reason}. Load what state_dict() returned.")
