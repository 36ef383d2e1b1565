"""One step of a base optimizer that leaves alone what is outside the active block.

Paper -> code (Eq. 8):  w - eta Q_j^T G  is written for plain gradient steps, where masking the update, the gradient or
everything is the same. With momentum, decay or accumulators the three differ (docs/decisions/0001): one function each.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from bcsc.choices import Mask


class Share(NamedTuple):
    """A parameter that is about to step, and which of its scalars are in the active block."""

    parameter: Tensor
    gradient: Tensor
    labels: Tensor
    block: int
    whole: bool
    empty: bool

    def put_back_outside(self, tensor: Tensor, before: Tensor) -> None:
        """Outside the block, give ``tensor`` the bits it had ``before``."""
        if self.empty:
            tensor.copy_(before)
        else:
            torch.where(self.labels == self.block, tensor, before, out=tensor)

    def masked_gradient(self) -> Tensor:
        """The gradient inside the block, zero outside."""
        return torch.where(self.labels == self.block, self.gradient, 0)


@contextmanager
def given_gradients(pairs: Iterable[tuple[Tensor, Tensor | None]]) -> Iterator[None]:
    """Let the base see these gradients; the user's own come back as they were.

    Hand over copies only: SGD with ``nesterov`` and ``foreach``, for one, writes into the gradients it is given.
    """
    own = []
    try:
        for parameter, gradient in pairs:
            own.append((parameter, parameter.grad))
            parameter.grad = gradient
        yield
    finally:
        for parameter, gradient in own:
            parameter.grad = gradient


def step_masking_update(base: Optimizer, shares: Sequence[Share]) -> None:
    """The base's state learns from the whole gradient; only the block's parameters move."""
    held = [(share, share.parameter.clone()) for share in shares if not share.whole]
    with given_gradients((share.parameter, share.gradient.clone()) for share in shares):
        base.step()
    for share, before in held:
        share.put_back_outside(share.parameter, before)


def step_masking_gradient(base: Optimizer, shares: Sequence[Share]) -> None:
    """The base steps every parameter, on a gradient that is zero outside the block."""
    with given_gradients((share.parameter, share.masked_gradient()) for share in shares):
        base.step()


def step_masking_all(base: Optimizer, shares: Sequence[Share]) -> None:
    """Outside the block neither parameters nor their per-element state move.

    A tensor with nothing in the block is not stepped at all. State that is not per element, such as the step count of
    Adam, belongs to the tensor and moves whenever some of the tensor does.
    """
    let_fused_sgd_meet_all(base, shares)
    cut = [share for share in shares if not share.whole and not share.empty]
    parameters_before = [share.parameter.clone() for share in cut]
    states_before = [clone_all(per_element_state(base, share.parameter)) for share in cut]
    with given_gradients((share.parameter, None if share.empty else share.gradient.clone()) for share in shares):
        base.step()
    met = [share.parameter for share, before in zip(cut, states_before, strict=True) if not before]
    initial = initial_state(base, met) if any(per_element_state(base, parameter) for parameter in met) else {}
    for share, parameter, state in zip(cut, parameters_before, states_before, strict=True):
        share.put_back_outside(share.parameter, parameter)
        for name, tensor in per_element_state(base, share.parameter).items():
            share.put_back_outside(tensor, (state or initial[id(share.parameter)])[name])


def let_fused_sgd_meet_all(base: Optimizer, shares: Sequence[Share]) -> None:
    """Give the tensors that sit out their zero momentum: fused SGD fails where only some tensors have one yet."""
    if isinstance(base, SGD) and any(group["fused"] and group["momentum"] for group in base.param_groups):
        for share in shares:
            if share.empty:
                base.state[share.parameter].setdefault("momentum_buffer", torch.zeros_like(share.parameter))


def per_element_state(base: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """The entries of a parameter's state that have its shape. Not to be asked of tensors of one element only."""
    state = base.state.get(parameter, {})
    return {name: x for name, x in state.items() if isinstance(x, Tensor) and x.shape == parameter.shape}


def clone_all(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of every tensor."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def initial_state(base: Optimizer, parameters: Sequence[Tensor]) -> dict[int, dict[str, Tensor]]:
    """By the parameter's id, the per-element state from which the base starts, such as zeros or Rprop's step sizes.

    Most bases make it inside their first step, mixed with what that step learns. So a first step is made with zeros for
    twins of the parameters, on zero gradients, from which nothing can be learned.
    """
    twins = {id(parameter): torch.zeros_like(parameter) for parameter in parameters}
    for twin in twins.values():
        twin.grad = torch.zeros_like(twin)
    groups, state = base.param_groups, base.state
    hooks = base._optimizer_step_pre_hooks, base._optimizer_step_post_hooks  # not to be called on the twins
    twin_groups = [{**group, "params": [twins[id(p)] for p in group["params"] if id(p) in twins]} for group in groups]
    base.param_groups, base.state = [group for group in twin_groups if group["params"]], defaultdict(dict)
    base._optimizer_step_pre_hooks, base._optimizer_step_post_hooks = OrderedDict(), OrderedDict()
    try:
        base.step()
        return {key: per_element_state(base, twin) for key, twin in twins.items()}
    finally:
        base.param_groups, base.state = groups, state
        base._optimizer_step_pre_hooks, base._optimizer_step_post_hooks = hooks


STEPS: Mapping[Mask, Callable[[Optimizer, Sequence[Share]], None]] = {
    "update": step_masking_update,
    "gradient": step_masking_gradient,
    "all": step_masking_all,
}
