"""One step of a base optimizer that leaves alone what is outside the active block.

Paper -> code (Eq. 9):  w - eta Q_j^T G  is written for plain gradient steps, where masking the update, the gradient or
everything is the same. With momentum, decay or accumulators the three differ (docs/decisions/0001): one function each.

All scalars of one device and type are handled in a few operations, however many tensors they are in, and none of the
operations waits for the device.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable loads the compiler at once
from torch.optim import Optimizer

from bcsc.choices import Mask
from bcsc.optim.bases.conduct import Conduct, initial_state, momenta_apart, per_element_state, without_momentum
from bcsc.optim.fast.one_pass import is_watched
from bcsc.optim.partition import EpochBlocks, local
from bcsc.optim.updates.active_block import PARAMETER, ActiveBlock, Entry, copy_all
from bcsc.optim.updates.alignment import Factors


@contextmanager
def lent_gradients(copies: Sequence[tuple[Tensor, Tensor | None]]) -> Iterator[None]:
    """Let the base see copies; in a compiled step by writing into the user's own, as a graph may replace none."""
    if not torch.compiler.is_compiling():
        with given_gradients(copies):
            yield
        return
    targets = [p.grad for p, _ in copies if p.grad is not None]
    own = [gradient.clone() for gradient in targets]
    copy_all(targets, [copy for _, copy in copies if copy is not None])
    yield
    copy_all(targets, own)


@contextmanager
def given_gradients(pairs: Iterable[tuple[Tensor, Tensor | None]]) -> Iterator[None]:
    """Let the base see these gradients; the user's own come back as they were."""
    own = []
    try:
        for parameter, gradient in pairs:
            own.append((parameter, parameter.grad))
            parameter.grad = gradient
        yield
    finally:
        for parameter, gradient in reversed(own):
            parameter.grad = gradient


def gradients_to_give(active: ActiveBlock, conduct: Conduct) -> list[tuple[Tensor, Tensor | None]]:
    """Copies of the gradients for a base that may write into the user's own; else nothing."""
    if not conduct.may_write_into_gradients:
        return []
    return active.as_gradients(active.copied(active.gradients, "copy"))


def step_base(base: Optimizer) -> None:
    """The base's own step; in a compiled one without what torch puts around it, which breaks the graph."""
    with momenta_apart(base) if without_momentum(base) else nullcontext():
        if torch.compiler.is_compiling() and not is_watched(base):
            inspect.unwrap(type(base).step)(base)
        else:
            base.step()


def step_unmasked(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> None:
    """The base's own step."""
    with lent_gradients(gradients_to_give(active, conduct)):
        step_base(base)


def step_masking_update(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> None:
    """The base's state learns from the whole gradient; only the block's parameters move."""
    active.copied(active.parameters, "before")
    step_unmasked(base, active, conduct)
    active.multiply_moves()
    active.put_back_outside(active.parameters)


def step_masking_gradient(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> None:
    """The base steps every parameter, on a gradient that is zero outside the block."""
    with lent_gradients(active.as_gradients(active.masked_gradients())):
        step_base(base)


def step_masking_all(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> None:
    """Outside the block neither parameters nor their per-element state move.

    A tensor with nothing in the block is not stepped at all. State that is not per element, such as the step count of
    Adam, belongs to the tensor and moves whenever some of the tensor does.
    """
    if torch.compiler.is_compiling() and has_begun(base, active, conduct):
        step_all_and_put_back(base, active, conduct)
    else:
        step_tensors_of_block(base, active, conduct)


def has_begun(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> bool:
    """Whether all state that a base makes in its first step is there, in tensors; of others' bases nobody knows."""
    states = [base.state.get(active.whole(parameter), {}) for parameter in active.parameters]
    return type(base).__module__.startswith("torch.optim.") and all(
        conduct.state_names <= state.keys() and all(isinstance(x, Tensor | None) for x in state.values())
        for state in states
    )


def step_all_and_put_back(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> None:
    """The same in one graph for all blocks: every tensor is stepped, and put back if the block has nothing of it."""
    many = [parameter for parameter in active.parameters if parameter.tensor.numel() > 1]
    by_element = [*active.parameters, *state_entries(base, active, many, conduct)]
    names = {(entry.name, entry.number) for entry in by_element}
    others = [
        Entry(name, parameter.number, local(value))
        for parameter in active.parameters
        for name, value in base.state.get(active.whole(parameter), {}).items()
        if isinstance(value, Tensor) and (name, parameter.number) not in names
    ]
    active.copied(by_element, "before")
    before = [entry.tensor.clone() for entry in others]
    step_unmasked(base, active, conduct)
    active.put_back_outside(by_element)
    for (_, number, value), old in zip(others, before, strict=True):
        is_stepped = (active.blocks.present_labels[number] == active.block).any()
        value.copy_(torch.where(is_stepped.to(value.device, non_blocking=True), value, old))


@_disable_dynamo  # what it does depends on the state and on the block
def step_tensors_of_block(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> None:
    """Step the tensors that the block has something of."""
    idle = [parameter for parameter in active.parameters if active.has_none_of(parameter)]
    cut_through = [p for p in active.parameters if not active.has_none_of(p) and not active.has_all_of(p)]
    states = state_entries(base, active, cut_through, conduct)
    active.copied([*cut_through, *states], "before")
    gradients = gradients_to_give(active, conduct)
    with given_gradients([*gradients, *[(active.whole(parameter), None) for parameter in idle]]):
        step_base(base)
    known = {(entry.name, entry.number) for entry in states}
    states = state_entries(base, active, cut_through, conduct)
    start_outside(base, active, conduct, [entry for entry in states if (entry.name, entry.number) not in known])
    active.put_back_outside([*cut_through, *states])


def start_outside(base: Optimizer, active: ActiveBlock, conduct: Conduct, made: Sequence[Entry]) -> None:
    """Let state that the step has made start, outside the block, as a base starts it: from the parameter or alike."""
    of_parameter = [entry for entry in made if entry.name in conduct.starts_as_parameter]
    parameters = [Entry(PARAMETER, i, local(active.blocks.parameters[i])) for _, i, _ in of_parameter]
    copy_all(active.copies(of_parameter, "before"), active.copies(parameters, "before"))
    others = [entry for entry in made if entry.name not in conduct.starts_as_parameter]
    if others:
        initial = initial_state(base, [active.blocks.parameters[entry.number] for entry in others])
        found = [initial[active.blocks.parameters[entry.number]].get(entry.name) for entry in others]
        values = [torch.zeros_like(x.tensor) if y is None else local(y) for x, y in zip(others, found, strict=True)]
        copy_all(active.copies(others, "before"), values)


def state_entries(base: Optimizer, active: ActiveBlock, parameters: Iterable[Entry], conduct: Conduct) -> list[Entry]:
    """The per-element state of parameters that are cut through, which have more than one element."""
    return [
        Entry(name, parameter.number, local(tensor))
        for parameter in parameters
        for name, tensor in per_element_state(base, active.whole(parameter), conduct.not_by_element).items()
    ]


MASKED_STEPS: Mapping[Mask, Callable[[Optimizer, ActiveBlock, Conduct], None]] = {
    "update": step_masking_update,
    "gradient": step_masking_gradient,
    "all": step_masking_all,
}


def masked_step(
    base: Optimizer, blocks: EpochBlocks, block: int, mask: Mask, conduct: Conduct, *, factors: Factors = None
) -> None:
    """Let the base make one step that moves the active block alone, in the sense of the mask.

    Factors go with ``mask="update"``.
    """
    active = ActiveBlock(blocks, block, factors)
    if factors is None and all(map(active.has_all_of, active.parameters)):
        step_unmasked(base, active, conduct)
    else:
        MASKED_STEPS[mask](base, active, conduct)
