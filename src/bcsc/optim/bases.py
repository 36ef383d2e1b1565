"""What a base optimizer does: its state, how that starts, and whether it can be stepped block by block.

Nobody's word is taken for it: a twin of the base, with the same settings and no state yet, steps small stand-ins for
the parameters, and what it does to them is seen. Neither the base nor the parameters notice.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from bcsc.seeding import stream

NUM_TRIAL_STEPS = 3  # the first makes the state; from the second on it is all there
SIDE = 3  # of a stand-in, at most


class Conduct(NamedTuple):
    """What a base does that a step in blocks must know."""

    writes_into_gradients: bool = True
    starts_as_parameter: frozenset[str] = frozenset()  # the names of state that begins as a copy of the parameter


def settings_of(base: Optimizer) -> Hashable:
    """What the conduct may depend on: choices, which numbers are zero, and the devices."""
    devices = frozenset(p.device for group in base.param_groups for p in group["params"])
    return devices, *[
        tuple((name, setting(value)) for name, value in group.items() if name != "params")
        for group in base.param_groups
    ]


def setting(value: object) -> Hashable:
    """A choice itself; of a number whether it is zero; of anything else its type."""
    if isinstance(value, bool | str | None):
        return value
    if isinstance(value, int | float):
        return value == 0
    return type(value).__name__


def observed_conduct(base: Optimizer) -> Conduct:
    """Find out by a few steps of a twin; of a base that will not step by itself, assume the worst."""
    stand_ins = small_stand_ins(base)
    twin = twin_of(base, stand_ins)
    generator = stream(0, "gradients of stand-ins")
    writes = False
    try:
        with random_state_kept(stand_ins.values()):
            for _ in range(NUM_TRIAL_STEPS):
                gradients = {p: random_like(p, generator) for p in stand_ins.values()}
                for p, gradient in gradients.items():
                    p.grad = gradient.clone()
                step_alone(twin)
                writes |= not all(same_bits(p.grad, gradient) for p, gradient in gradients.items())
    except Exception:  # whatever it is, the base says it itself when it is asked to step
        return Conduct()
    return Conduct(writes)


def small_stand_ins(base: Optimizer) -> dict[Tensor, Tensor]:
    """A small random tensor for one parameter of each kind: group, number of dimensions, type and device."""
    generator = stream(0, "stand-ins")
    chosen: dict[object, Tensor] = {}
    for number, group in enumerate(base.param_groups):
        for p in group["params"]:
            if p.requires_grad:
                chosen.setdefault((number, p.dim(), p.dtype, p.device), p)
    shapes = {p: [min(SIDE, length) for length in p.shape] for p in chosen.values()}
    return {
        p: nn.Parameter(random_like(torch.empty(shape, dtype=p.dtype, device=p.device), generator))
        for p, shape in shapes.items()
    }


def random_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Normal numbers in the tensor's shape."""
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)


def random_state_kept(tensors: Iterable[Tensor]) -> AbstractContextManager[None]:
    """Leave the global generators, of the CPU and of the accelerator that tensors are on, as they were."""
    accelerator = torch.accelerator.current_accelerator()
    kind = "cuda" if accelerator is None else accelerator.type
    devices = {tensor.device for tensor in tensors if tensor.device.type == kind}
    return torch.random.fork_rng(list(devices), device_type=kind)


def same_bits(one: Tensor | None, other: Tensor) -> bool:
    """Whether two tensors have the same bits; NaN equals itself."""
    return one is not None and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def twin_of(base: Optimizer, stand_ins: Mapping[Tensor, Tensor]) -> Optimizer:
    """An optimizer of the base's class and settings, without state, that steps stand-ins for its parameters."""
    twin: Optimizer = object.__new__(type(base))
    vars(twin).update({name: value for name, value in vars(base).items() if name != "step"})  # a scheduler's wrapper
    groups = [
        {**own_copies(group), "params": [stand_ins[p] for p in group["params"] if p in stand_ins]}
        for group in base.param_groups
    ]
    twin.param_groups, twin.state = [group for group in groups if group["params"]], defaultdict(dict)
    twin._optimizer_step_pre_hooks, twin._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
    return twin


def own_copies(options: Mapping[str, Any]) -> dict[str, Any]:
    """A group's options, so that counting in them counts for nobody else."""
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in options.items()}


def step_alone(twin: Optimizer) -> None:
    """A step that is told to no one, not even to hooks on all optimizers."""
    step: Any = type(twin).step
    (step.__wrapped__ if getattr(step, "hooked", False) else step)(twin)


def per_element_state(base: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """The entries of a parameter's state that have its shape. Not to be asked of tensors of one element only."""
    state = base.state.get(parameter, {})
    return {name: x for name, x in state.items() if isinstance(x, Tensor) and x.shape == parameter.shape}


def initial_state(base: Optimizer, parameters: Iterable[Tensor]) -> dict[Tensor, dict[str, Tensor]]:
    """For each parameter the per-element state from which the base starts, such as zeros or Rprop's step sizes.

    Most bases make it inside their first step, mixed with what that step learns. So a twin makes a first step with
    zeros for parameters, on zero gradients, from which nothing can be learned.
    """
    stand_ins = {p: torch.zeros_like(p) for p in parameters}
    for stand_in in stand_ins.values():
        stand_in.grad = torch.zeros_like(stand_in)
    twin = twin_of(base, stand_ins)
    step_alone(twin)
    return {p: per_element_state(twin, stand_in) for p, stand_in in stand_ins.items()}


def start_fused_momenta(base: Optimizer, idle: Sequence[Tensor]) -> None:
    """Give tensors that sit out a step their zero momentum: fused SGD fails where only some tensors have one yet."""
    if isinstance(base, SGD) and any(group["fused"] and group["momentum"] for group in base.param_groups):
        for parameter in idle:
            base.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
