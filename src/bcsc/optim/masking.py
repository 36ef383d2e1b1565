"""One step of a base optimizer that leaves alone what is outside the active block.

Paper -> code (Eq. 8):  w - eta Q_j^T G  is written for plain gradient steps, where masking the update, the gradient or
everything is the same. With momentum, decay or accumulators the three differ (docs/decisions/0001): one function each.

All scalars of one device and type are handled in a few operations, however many tensors they are in, and none of the
operations waits for the device.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor
from torch._compile import _disable_dynamo  # torch.compiler.disable loads the compiler at once
from torch.optim import Optimizer

from bcsc.choices import Mask
from bcsc.optim.bases.conduct import Conduct, initial_state, momenta_apart, per_element_state, without_momentum
from bcsc.optim.fast.one_pass import is_watched
from bcsc.optim.fast.outside import merge
from bcsc.optim.partition import EpochBlocks, FlatMemory, Place, local, with_part

Factors = float | Sequence[Tensor] | None  # by what moves are multiplied; tensors: for each parameter with a gradient

PARAMETER, GRADIENT = "(parameter)", "(gradient)"  # names that no state of a base has


class Entry(NamedTuple):
    """A tensor with a value for every scalar of a parameter: the parameter, its gradient, or a part of its state.

    Of a ``DTensor`` it is the shard that is here.
    """

    name: str
    number: int  # of the parameter
    tensor: Tensor


class Slot(NamedTuple):
    """Where the entries of one name, device and type are copied to."""

    memory: FlatMemory
    name: str
    dtype: torch.dtype

    def place(self, purpose: str) -> Place:
        """The memory for copies with a purpose."""
        return self.memory.place((self.name, purpose), self.dtype)


class ActiveBlock:
    """The block that a step moves, of the parameters that have a gradient."""

    def __init__(self, blocks: EpochBlocks, block: int, factors: Factors = None) -> None:
        self.blocks, self.block, self.factors = blocks, block, factors
        having = [(i, p, p.grad) for i, p in enumerate(blocks.parameters) if p.grad is not None]
        self.parameters = [Entry(PARAMETER, i, local(p)) for i, p, _ in having]
        self.gradients = [Entry(GRADIENT, i, local(gradient)) for i, _, gradient in having]
        self._inside: dict[tuple[FlatMemory, torch.dtype], Tensor] = {}

    def whole(self, parameter: Entry) -> Tensor:
        """The parameter that the base knows."""
        return self.blocks.parameters[parameter.number]

    def as_gradients(self, copies: Sequence[Tensor]) -> list[tuple[Tensor, Tensor | None]]:
        """The parameters, each with a copy of its gradient in the form of the gradient."""
        parameters = map(self.whole, self.parameters)
        return [
            (p, None if p.grad is None else with_part(p.grad, copy)) for p, copy in zip(parameters, copies, strict=True)
        ]

    def has_none_of(self, parameter: Entry) -> bool:
        """Whether all of a parameter's scalars are outside the block."""
        return self.block not in self.blocks.present[parameter.number]

    def has_all_of(self, parameter: Entry) -> bool:
        """Whether all of a parameter's scalars are inside the block."""
        return self.blocks.present[parameter.number] == [self.block]

    def copied(self, entries: Sequence[Entry], purpose: str) -> list[Tensor]:
        """Copies of the tensors, in memory that is theirs for this purpose at every step."""
        copies = self.copies(entries, purpose)
        copy_all(copies, [entry.tensor for entry in entries])
        return copies

    def copies(self, entries: Iterable[Entry], purpose: str) -> list[Tensor]:
        """What was last copied with this purpose."""
        return [self._slot(entry).place(purpose).parts[entry.number] for entry in entries]

    def masked_gradients(self) -> list[Tensor]:
        """The gradients inside the block, zeros outside."""
        masked = self.copies(self.gradients, "masked")
        if self._merged(self.gradients, masked, [entry.tensor for entry in self.gradients], zeros_outside=True):
            return masked
        self.copied(self.gradients, "masked")
        for slot in self._slots(self.gradients):
            slot.place("masked").bits.mul_(self.inside(slot))
        return masked

    def put_back_outside(self, entries: Sequence[Entry]) -> None:
        """Outside the block, give the tensors the bits that were copied ``"before"``."""
        before_all = self.copies(entries, "before")
        if self._merged(entries, [entry.tensor for entry in entries], before_all, zeros_outside=False):
            return
        self.copied(entries, "after")
        for slot in self._slots(entries):
            before, after = slot.place("before").bits, slot.place("after").bits
            before.addcmul_(after.sub_(before), self.inside(slot))
        copy_all([entry.tensor for entry in entries], before_all)

    def _merged(
        self, entries: Sequence[Entry], targets: Sequence[Tensor], sources: Sequence[Tensor], *, zeros_outside: bool
    ) -> bool:
        numbers = [entry.number for entry in entries]
        return merge(self.blocks, self.block, numbers, (targets, sources), zeros_outside=zeros_outside)

    def multiply_moves(self) -> None:
        """Let the parameters go ``factors`` times as far as the base has moved them from where they were "before"."""
        moved, before = [parameter.tensor for parameter in self.parameters], self.copies(self.parameters, "before")
        if isinstance(self.factors, float) and moved:
            torch._foreach_lerp_(moved, before, 1.0 - self.factors)
        elif self.factors is not None and not isinstance(self.factors, float):
            for after, start, factor in zip(moved, before, self.factors, strict=True):
                after.copy_(start + factor * (after - start))

    def inside(self, slot: Slot) -> Tensor:
        """For all scalars of a slot, one inside the block and zero outside; an integer of the scalars' size."""
        key = slot.memory, slot.place("before").bits.dtype
        if key not in self._inside:
            labels = slot.memory.place("labels", self.blocks.label_dtype)
            inside = slot.memory.place("inside", key[1])
            torch.eq(labels.flat, self.block, out=inside.flat)
            self._inside[key] = inside.bits
        return self._inside[key]

    def _slot(self, entry: Entry) -> Slot:
        return Slot(self.blocks.memory_of[entry.number], entry.name, entry.tensor.dtype)

    def _slots(self, entries: Iterable[Entry]) -> Iterable[Slot]:
        return dict.fromkeys(map(self._slot, entries))


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy every source to its target, at once those of one device and type."""
    alike: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
    for target, source in zip(targets, sources, strict=True):
        some_targets, some_sources = alike.setdefault((target.device, target.dtype), ([], []))
        some_targets.append(target)
        some_sources.append(source)
    for some_targets, some_sources in alike.values():
        torch._foreach_copy_(some_targets, some_sources)


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


@_disable_dynamo  # what it does depends on the state and on the block
def step_masking_all(base: Optimizer, active: ActiveBlock, conduct: Conduct) -> None:
    """Outside the block neither parameters nor their per-element state move.

    A tensor with nothing in the block is not stepped at all. State that is not per element, such as the step count of
    Adam, belongs to the tensor and moves whenever some of the tensor does.
    """
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
