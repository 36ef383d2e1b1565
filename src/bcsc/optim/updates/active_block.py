"""The block that a step moves: copies of what it may change, and putting back what it must not."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bcsc.optim.fast.outside import merge
from bcsc.optim.partition import EpochBlocks, FlatMemory, Place, local, with_part
from bcsc.optim.updates.alignment import Factors

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
