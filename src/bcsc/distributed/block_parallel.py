"""The block-parallel mode: W ranks make W consecutive inner steps at once, each on a mini-batch of its own.

All gradients of a round are taken at the same point, then the W steps are applied in cycle order. That departs from
Algorithm 1, where a step sees what the steps before it did: here its gradient is up to W - 1 inner steps old.

Rank r owns the blocks j with j mod W = r, and keeps the base's state for them alone. As W divides M, the step that a
rank computes always moves a block that it owns. A round, for m scalars in M blocks:

- Under ``mask="update"`` the state learns from every step's whole gradient: each rank sends every owner its piece of
  it, (W - 1) / W m numbers. Under ``"gradient"`` and ``"all"`` the owner has computed all that it needs itself.
- Every owner makes the W steps on what it owns.
- What has moved is sent to all: the W active blocks, (W - 1) / M m numbers from each rank; under ``"gradient"``, where
  everything coasts on, what the rank owns, (W - 1) / W m numbers.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD

from bcsc.distributed.collectives import Ranks
from bcsc.distributed.packing import packed, unpack_
from bcsc.errors import InvalidArgumentError, UnsupportedOptimizerError
from bcsc.optim.block_cyclic import BlockCyclic, Cut
from bcsc.optim.masking import STEPS, Share
from bcsc.optim.partition import label_dtype

NOT_BY_ELEMENT = ("Adafactor", "Muon")  # what they do to a scalar depends on the rest of its tensor


class Ownership:
    """One epoch's blocks shared out: of every parameter the owner of each scalar, and the piece that this rank owns."""

    def __init__(self, cut: Cut, ranks: Ranks) -> None:
        self.cut = cut
        self.labels = [labels.expand_as(p) for p, labels in zip(cut.parameters, cut.labels, strict=True)]
        self.owners = [(labels.int() % ranks.size).to(label_dtype(ranks.size)) for labels in self.labels]
        mine = self.owned_by(ranks.rank)
        self.pieces = [p.detach()[own] for p, own in zip(cut.parameters, mine, strict=True)]
        self.piece_labels = [labels[own] for labels, own in zip(self.labels, mine, strict=True)]

    def owned_by(self, rank: int) -> list[Tensor]:
        """Of every parameter, which scalars a rank owns."""
        return [owners == rank for owners in self.owners]

    def in_block(self, block: int) -> list[Tensor]:
        """Of every parameter, which scalars are in a block."""
        return [labels == block for labels in self.labels]


class BlockParallel:
    """A ``BlockCyclic`` whose inner steps are made W at a time; ``step`` is one round. Every rank calls all methods.

    Outside of ``step`` the wrapped optimizer has its parameters, groups and position as ever; its state is here, in
    pieces. ``state_dict`` is that of the wrapped optimizer with the state of all ranks put together, so that a run can
    go on with another number of ranks, or without.

    Args:
        optimizer: cyclic, its ``num_blocks`` a multiple of the number of ranks, its base one that treats every scalar
            by itself: all of ``torch.optim`` that ``BlockCyclic`` takes, but for Adafactor and Muon.
        ranks: those that step together.
    """

    def __init__(self, optimizer: BlockCyclic, ranks: Ranks) -> None:
        refuse_unfit(optimizer, ranks)
        self.optimizer, self.ranks = optimizer, ranks
        self._owned: Ownership | None = None
        self._state: defaultdict[Tensor, Any] = defaultdict(dict)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's."""
        return self.optimizer.param_groups

    @property
    def inner_step(self) -> int:
        """The position of the next round's first step in its epoch."""
        return self.optimizer.inner_step

    def block_at(self, inner_step: int) -> int:
        """The block that an inner step of this epoch moves."""
        return self.optimizer.block_at(inner_step)

    def set_epoch(self, epoch: int) -> None:
        """As the wrapped optimizer's."""
        self.optimizer.set_epoch(epoch)

    def zero_grad(self) -> None:
        """As the wrapped optimizer's."""
        self.optimizer.zero_grad()

    @torch.no_grad()
    def step(self) -> None:
        """One round: this rank's gradients are those of inner step ``inner_step + rank``."""
        owned = self._own()
        for p, piece, own in zip(owned.cut.parameters, owned.pieces, owned.owned_by(self.ranks.rank), strict=True):
            piece.copy_(p[own])
        blocks = [self.block_at(self.inner_step + rank) for rank in range(self.ranks.size)]
        gradients = self._piece_gradients(owned)
        with self._base_on_pieces(owned):
            for block, of_step in zip(blocks, gradients, strict=True):
                STEPS[self.optimizer.mask](self.optimizer.base, shares(owned, of_step, block))
                self.optimizer.advance()
        self._spread(owned, blocks)

    def state_dict(self) -> dict[str, Any]:
        """The wrapped optimizer's, with every rank's pieces put together."""
        if self._owned is None:
            return self.optimizer.state_dict()
        base = self.optimizer.base
        base.state = self._whole_state(self._owned)
        try:
            return self.optimizer.state_dict()
        finally:
            base.state = defaultdict(dict)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken, by whatever number of ranks."""
        self.optimizer.load_state_dict(state_dict)
        self._owned = None

    def _own(self) -> Ownership:
        """This epoch's ownership. When the blocks change, the state moves to its new owners."""
        cut, base = self.optimizer.cut(), self.optimizer.base
        if self._owned is None or self._owned.cut is not cut:
            whole = base.state if self._owned is None else self._whole_state(self._owned)
            self._owned = Ownership(cut, self.ranks)
            mine = zip(cut.parameters, self._owned.pieces, self._owned.owned_by(self.ranks.rank), strict=True)
            self._state = defaultdict(
                dict, {piece: piece_of_state(whole[p], p, own) for p, piece, own in mine if whole.get(p)}
            )
            base.state = defaultdict(dict)
        return self._owned

    def _piece_gradients(self, owned: Ownership) -> list[list[Tensor]]:
        """For every step of the round the gradients of the pieces, of those parameters that have one."""
        ranks, keep = self.ranks, [p.grad is not None for p in owned.cut.parameters]
        gradients = [p.grad for p in owned.cut.parameters if p.grad is not None]
        sizes = [len(piece) for piece in kept(owned.pieces, keep)]
        outgoing = [packed(gradients, kept(owned.owned_by(rank), keep)) for rank in range(ranks.size)]
        if self.optimizer.mask == "update":
            flat = ranks.exchange(outgoing, [sum(sizes)] * ranks.size)
        else:
            mine = outgoing[ranks.rank]
            flat = [mine if rank == ranks.rank else torch.zeros_like(mine) for rank in range(ranks.size)]
        return [list(torch.split(of_step, sizes)) for of_step in flat]

    @contextmanager
    def _base_on_pieces(self, owned: Ownership) -> Iterator[None]:
        """Let the base have the pieces for parameters, and their state."""
        base = self.optimizer.base
        groups = base.param_groups
        piece_of = {id(p): piece for p, piece in zip(owned.cut.parameters, owned.pieces, strict=True)}
        base.param_groups = [
            {**group, "params": [piece_of[id(p)] for p in group["params"] if id(p) in piece_of]} for group in groups
        ]
        base.state = self._state
        try:
            yield
        finally:
            base.param_groups, base.state = groups, defaultdict(dict)

    def _spread(self, owned: Ownership, blocks: Sequence[int]) -> None:
        """Give every rank what the owners have moved."""
        ranks, parameters = self.ranks, owned.cut.parameters
        if self.optimizer.mask == "gradient":
            moved = [owned.owned_by(rank) for rank in range(ranks.size)]
            mine = packed(owned.pieces)
        else:
            moved = [owned.in_block(block) for block in blocks]
            mine = packed(owned.pieces, [labels == blocks[ranks.rank] for labels in owned.piece_labels])
        self._place(mine, moved, parameters)

    def _place(self, mine: Tensor, masks: Sequence[Sequence[Tensor]], tensors: Sequence[Tensor]) -> None:
        """Send the scalars that are ``mine`` to all, and put everyone's where that rank's masks say."""
        sizes = [sum(int(mask.sum()) for mask in of_rank) for of_rank in masks]
        received = self.ranks.exchange([mine] * self.ranks.size, sizes)
        for flat, of_rank in zip(received, masks, strict=True):
            unpack_(flat, tensors, of_rank)

    def _whole_state(self, owned: Ownership) -> defaultdict[Tensor, Any]:
        """The state of whole parameters, from the pieces of all ranks."""
        whole: defaultdict[Tensor, Any] = defaultdict(dict)
        for i, (p, piece) in enumerate(zip(owned.cut.parameters, owned.pieces, strict=True)):
            masks = [[owned.owners[i] == rank] for rank in range(self.ranks.size)]
            for name, value in self._state.get(piece, {}).items():
                whole[p][name] = value
                if isinstance(value, Tensor) and value.shape == piece.shape:
                    whole[p][name] = torch.empty_like(p, dtype=value.dtype, requires_grad=False)
                    self._place(value, masks, [whole[p][name]])
        return whole


def kept(items: Sequence[Tensor], keep: Sequence[bool]) -> list[Tensor]:
    """The items that are to be kept."""
    return [item for item, wanted in zip(items, keep, strict=True) if wanted]


def shares(owned: Ownership, gradients: Sequence[Tensor], block: int) -> list[Share]:
    """What of every piece is in a block. Whether a whole tensor takes part is asked of the tensor, as it is alone."""
    keep = [p.grad is not None for p in owned.cut.parameters]
    present = [blocks for blocks, wanted in zip(owned.cut.present, keep, strict=True) if wanted]
    return [
        Share(piece, gradient, labels, block, blocks == [block], block not in blocks)
        for piece, gradient, labels, blocks in zip(
            kept(owned.pieces, keep), gradients, kept(owned.piece_labels, keep), present, strict=True
        )
    ]


def piece_of_state(state: dict[str, Any], parameter: Tensor, own: Tensor) -> dict[str, Any]:
    """The part of a parameter's state that belongs to a piece; what is not by element goes with every piece."""
    return {name: x[own] if is_by_element(name, x, parameter) else x for name, x in state.items()}


def is_by_element(name: str, value: Any, parameter: Tensor) -> bool:
    """Whether an entry of a parameter's state has a value for every scalar; a step count is no such thing."""
    return isinstance(value, Tensor) and value.shape == parameter.shape and name != "step"


def refuse_unfit(optimizer: BlockCyclic, ranks: Ranks) -> None:
    """Refuse what cannot be made several steps at a time."""
    if optimizer.order != "cyclic":
        raise InvalidArgumentError(
            "The block-parallel mode needs the blocks in turn, and this method draws them at random: two ranks could "
            "move the same one. Take the methods bcsc or rbc, or the exact mode."
        )
    if optimizer.num_blocks % ranks.size != 0:
        raise InvalidArgumentError(
            f"The number of ranks must divide the number of blocks in the block-parallel mode, "
            f"got {ranks.size} ranks and {optimizer.num_blocks} blocks."
        )
    if type(optimizer.base) is not SGD and any(p.dim() == 0 for p in optimizer.cut().parameters):
        raise UnsupportedOptimizerError(
            "The block-parallel mode cannot tell a scalar parameter's own state from its step count with a base other "
            "than SGD. Give the parameter a shape of (1,), or take the exact mode."
        )
    if type(optimizer.base).__name__ in NOT_BY_ELEMENT:
        raise UnsupportedOptimizerError(
            f"{type(optimizer.base).__name__} does not treat every scalar by itself, so its state cannot be shared out "
            "in the block-parallel mode. Take the exact mode."
        )
