"""What a base does that a step in blocks must know, and how its state starts.

Nobody's word is taken for it: a twin of the base makes a few steps, and what it does is seen.
"""

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable loads the compiler at once
from torch.optim import SGD, Optimizer

from bcsc.optim.bases.trial import Trials, step_unnoticed, twin_of, without_trace


class Conduct(NamedTuple):
    """What a base does. The defaults assume the worst."""

    may_write_into_gradients: bool = True
    starts_as_parameter: frozenset[str] = frozenset()  # names of state that begins as a copy of the parameter
    not_by_element: frozenset[tuple[str, int]] = frozenset()  # names of other state, for tensors of so many dimensions
    state_names: frozenset[str] = frozenset()  # of all tensors that a first step makes


def observed_conduct(base: Optimizer) -> Conduct:
    """Find out by a few steps of a twin; of a base that will not step by itself, assume the worst."""
    if is_distributed(base):
        return Conduct()
    try:
        with without_trace(base):
            trials = Trials(base)
            # Others' bases may come to write after any number of steps, as schedule-free RAdam does.
            may_write = not type(base).__module__.startswith("torch.optim.") or writes_into_gradients(trials)
            return Conduct(may_write, starts_as_parameter(trials), not_by_element(trials), state_names(trials))
    except Exception:  # whatever it is, the base says it itself when it is asked to step
        return Conduct()


@_disable_dynamo
def learn_conduct(base: Optimizer, settings: Hashable, known: dict[Hashable, Conduct]) -> Conduct:
    """Find out, and keep it with what is known by settings."""
    known[settings] = observed_conduct(base)
    return known[settings]


def is_distributed(base: Optimizer) -> bool:
    """Whether a step talks to other processes, which do not expect a trial."""
    return type(base).__module__.startswith("torch.distributed.")


def settings_of(base: Optimizer) -> Hashable:
    """What the conduct may depend on: choices, which numbers are zero, and the devices.

    Not on whether a step can be captured in a graph, which torch's compiler sets as it likes.
    """
    devices = frozenset(p.device for group in base.param_groups for p in group["params"])
    return devices, *[
        tuple((name, setting(value)) for name, value in group.items() if name not in ("params", "capturable"))
        for group in base.param_groups
    ]


def setting(value: object) -> Hashable:
    """A choice itself; of a number whether it is zero; of anything else its type."""
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, int | float):
        return value == 0
    return type(value).__name__


def writes_into_gradients(trials: Trials) -> bool:
    """Whether the base leaves other gradients behind than it was given, in its first steps."""
    trial, writes = trials.new(), False
    for scale in (1.0, 2.0, 3.0):
        trial.step(scale)
        given = [gradient * scale for gradient in trial.gradients]
        writes |= any(p.grad is None or not same_bits(p.grad, g) for p, g in zip(trial.stand_ins, given, strict=True))
    return writes


def starts_as_parameter(trials: Trials) -> frozenset[str]:
    """The names of state that is a copy of the parameter before the step, after one that learns nothing or any."""
    names = set()
    for trial, scale in ((trials.new(weight_decay=0.0), 0.0), (trials.new(), 1.0)):
        before = [p.detach().clone() for p in trial.stand_ins]
        trial.step(scale)
        for p, value in zip(trial.stand_ins, before, strict=True):
            entries = per_element_state(trial.twin, p).items() if p.numel() > 1 else ()
            names |= {name for name, x in entries if not is_whole(x) and torch.equal(x, value.to(x.dtype))}
    return frozenset(names)


def is_whole(tensor: Tensor) -> bool:
    """Whether its numbers are whole by type."""
    return not tensor.is_floating_point() and not tensor.is_complex()


def not_by_element(trials: Trials) -> frozenset[tuple[str, int]]:
    """The names of tensors in the state that have another shape than their stand-in, and its number of dimensions."""
    trial = trials.new()
    trial.step(scale=1.0)
    return frozenset(
        (name, p.dim())
        for p in trial.stand_ins
        for name, value in trial.twin.state.get(p, {}).items()
        if isinstance(value, Tensor) and value.shape != p.shape
    )


def state_names(trials: Trials) -> frozenset[str]:
    """The names of tensors in the state after a first step."""
    trial = trials.new()
    trial.step(scale=1.0)
    states = trial.twin.state.values()
    return frozenset(name for state in states for name, value in state.items() if isinstance(value, Tensor))


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same bits; NaN equals itself."""
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def per_element_state(
    base: Optimizer, parameter: Tensor, but_for: frozenset[tuple[str, int]] = frozenset()
) -> dict[str, Tensor]:
    """The entries of a parameter's state that have its shape. Not to be asked of tensors of one element only."""
    return {
        name: value
        for name, value in base.state.get(parameter, {}).items()
        if isinstance(value, Tensor) and value.shape == parameter.shape and (name, parameter.dim()) not in but_for
    }


def initial_state(base: Optimizer, parameters: Iterable[Tensor]) -> dict[Tensor, dict[str, Tensor]]:
    """For each parameter the per-element state from which the base starts, such as zeros or Rprop's step sizes.

    Most bases make it inside their first step, mixed with what that step learns. So a twin makes a first step with
    zeros for parameters, on zero gradients, from which nothing can be learned.
    """
    stand_ins = {p: torch.zeros_like(p) for p in parameters}
    for stand_in in stand_ins.values():
        stand_in.grad = torch.zeros_like(stand_in)
    twin = twin_of(base, {id(p): stand_in for p, stand_in in stand_ins.items()})
    step_unnoticed(twin)
    return {p: per_element_state(twin, stand_in) for p, stand_in in stand_ins.items()}


def without_momentum(base: Optimizer) -> list[tuple[dict[str, Any], list[Tensor]]]:
    """The groups of fused SGD in which some tensors to be stepped have a momentum and some have none: these.

    They may have sat out the first step, or have had no gradient so far.
    """
    found = []
    for group in base.param_groups if isinstance(base, SGD) else ():
        if group["fused"] and group["momentum"]:
            stepped = [p for p in group["params"] if p.grad is not None]
            missing = [p for p in stepped if base.state.get(p, {}).get("momentum_buffer") is None]
            if 0 < len(missing) < len(stepped):
                found.append((group, missing))
    return found


@contextmanager
def momenta_apart(base: Optimizer) -> Iterator[None]:
    """Let fused SGD begin its late momenta as it begins all others, in a group apart: it fails on a mixture."""
    num_groups = len(base.param_groups)
    changed = [(group, group["params"], missing) for group, missing in without_momentum(base)]
    try:
        for group, parameters, missing in changed:
            late = set(map(id, missing))
            group["params"] = [p for p in parameters if id(p) not in late]
            base.param_groups.append({**group, "params": missing})
        yield
    finally:
        del base.param_groups[num_groups:]
        for group, parameters, _ in changed:
            group["params"] = parameters
