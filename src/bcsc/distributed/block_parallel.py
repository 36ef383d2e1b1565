"""The block-parallel mode: W ranks make W consecutive inner steps at once, each on a mini-batch of its own.

All gradients of a round are taken at the same point, then the W steps are applied in cycle order. That departs from
Algorithm 1, where a step sees what the steps before it did: here its gradient is up to W - 1 inner steps old.

Rank r owns the blocks j with j mod W = r, and keeps the base's state for them alone. As W divides M, the step that a
rank computes always moves a block that it owns. A round, for m scalars in M blocks:

- Under ``mask="update"`` the state learns from every step's whole gradient: each rank sends every owner its piece of
  it, (W - 1) / W m numbers. Under ``"gradient"`` and ``"all"`` the owner has computed all that it needs itself.
- A rank may lack gradients that others have: a byte per parameter tells them.
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
from torch.optim import SGD, Optimizer

from bcsc.distributed.block_gradients import indices_by_label, packed, unpack_
from bcsc.distributed.by_element import treats_scalars_apart
from bcsc.distributed.collectives import Ranks
from bcsc.errors import InvalidArgumentError, StateMismatchError, UnsupportedOptimizerError
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.optim.masking import masked_step
from bcsc.optim.partition import EpochBlocks
from bcsc.optim.state_check import saved_position


class Ownership:
    """One epoch's blocks shared out. All parameters packed are one vector; those that a rank owns, its pieces, another.

    Attributes:
        of_ranks: for each rank where in the vector is what it owns.
        of_blocks: for each block where in the vector its scalars are.
        pieces: of each parameter what this rank owns.
        piece_blocks: the blocks of the pieces. Whether a step moves some of a tensor is asked of the whole tensor.
        of_blocks_in_pieces: for each block where in the packed pieces its scalars are.
    """

    def __init__(self, blocks: EpochBlocks, num_blocks: int, ranks: Ranks) -> None:
        self.blocks = blocks
        labels = packed(blocks.labels)
        owners = labels.int() % ranks.size
        self.of_ranks = indices_by_label(owners, ranks.size)
        self.of_blocks = indices_by_label(labels, num_blocks)
        self.owners = torch.split(owners, [p.numel() for p in blocks.parameters])
        mine = self.of_ranks[ranks.rank]
        sizes = [int((own == ranks.rank).sum()) for own in self.owners]
        piece_labels = labels.index_select(0, mine)
        self.pieces = [p.new_empty(size) for p, size in zip(blocks.parameters, sizes, strict=True)]
        self.piece_blocks = EpochBlocks(self.pieces, torch.split(piece_labels, sizes), present=blocks.present)
        self.of_blocks_in_pieces = indices_by_label(piece_labels, num_blocks)

    def of_parameter(self, index: int, ranks: Ranks) -> tuple[Tensor, ...]:
        """For each rank where in one flattened parameter is what it owns."""
        return indices_by_label(self.owners[index], ranks.size)


class BlockParallel:
    """A ``BlockCyclic`` whose inner steps are made W at a time; ``step`` is one round. Every rank calls all methods.

    Outside of ``step`` the wrapped optimizer has its parameters, groups and position as ever; its state is here, in
    pieces. ``state_dict`` is that of the wrapped optimizer with the state of all ranks put together, so that a run can
    go on with another number of ranks, or without.

    Args:
        optimizer: cyclic, its ``num_blocks`` a multiple of the number of ranks, its base one that treats every scalar
            by itself: all of ``torch.optim`` that ``BlockCyclic`` takes, but for Adafactor and Muon. Of others it is
            tried out.
        ranks: those that step together.
    """

    def __init__(self, optimizer: BlockCyclic, ranks: Ranks) -> None:
        refuse_in_parallel(optimizer, ranks)
        self.optimizer, self.ranks = optimizer, ranks
        self._owned: Ownership | None = None
        self._state: defaultdict[Tensor, Any] = defaultdict(dict)
        self._idle: dict[Tensor, Any] = {}  # the state of parameters that are in no block, such as frozen ones

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
        owned, ranks, conduct = self._own(), self.ranks, self.optimizer.conduct()
        unpack_(packed(owned.blocks.parameters).index_select(0, owned.of_ranks[ranks.rank]), owned.pieces)
        active = [self.block_at(self.inner_step + rank) for rank in range(ranks.size)]
        gradients, factors = self._piece_gradients(owned), self.optimizer.factors(owned.blocks)
        with self._base_on_pieces(owned) as base:
            for block, of_step in zip(active, gradients, strict=True):
                for piece, gradient in zip(owned.pieces, of_step, strict=True):
                    piece.grad = gradient
                masked_step(base, owned.piece_blocks, block, self.optimizer.mask, conduct, factors=factors)
                self.optimizer.advance()
        self._spread(owned, active)

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
        """Go on where ``state_dict`` was taken, by whatever number of ranks; between two rounds of them."""
        step = saved_position(state_dict)[1]
        if step % self.ranks.size:
            raise StateMismatchError(
                f"The saved state stands after {step} inner steps of an epoch, which are no whole rounds of "
                f"{self.ranks.size} ranks. Take a number of ranks that divides them, or the exact mode."
            )
        self.optimizer.load_state_dict(state_dict)
        self._owned = None

    def _own(self) -> Ownership:
        """This epoch's ownership. When the blocks change, the state moves to its new owners."""
        blocks, base = self.optimizer.epoch_blocks(), self.optimizer.base
        if self._owned is None or self._owned.blocks is not blocks:
            whole = base.state if self._owned is None else self._whole_state(self._owned)
            self._owned = Ownership(blocks, self.optimizer.num_blocks, self.ranks)
            self._state = defaultdict(dict)
            self._idle = {p: entry for p, entry in whole.items() if id(p) not in blocks.number_of}
            for i, (p, piece) in enumerate(zip(blocks.parameters, self._owned.pieces, strict=True)):
                if whole.get(p):
                    mine = self._owned.of_parameter(i, self.ranks)[self.ranks.rank]
                    self._state[piece] = piece_of_state(whole[p], p, mine)
            base.state = defaultdict(dict)
        return self._owned

    def _piece_gradients(self, owned: Ownership) -> list[list[Tensor | None]]:
        """For every step of the round the gradients of the pieces; none for those whose parameter has none there."""
        ranks, parameters = self.ranks, owned.blocks.parameters
        are_there = ranks.gather(torch.tensor([p.grad is not None for p in parameters], dtype=torch.uint8))
        whole = packed([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
        sizes = [len(piece) for piece in owned.pieces]
        if self.optimizer.mask == "update":
            outgoing = [whole.index_select(0, indices) for indices in owned.of_ranks]
            flat = ranks.exchange(outgoing, [sum(sizes)] * ranks.size)
        else:
            mine = whole.index_select(0, owned.of_ranks[ranks.rank])
            flat = [mine if rank == ranks.rank else torch.zeros_like(mine) for rank in range(ranks.size)]
        return [
            [
                part.to(p.dtype) if is_there else None
                for p, part, is_there in zip(parameters, torch.split(of_step, sizes), there.tolist(), strict=True)
            ]
            for of_step, there in zip(flat, are_there, strict=True)
        ]

    @contextmanager
    def _base_on_pieces(self, owned: Ownership) -> Iterator[Optimizer]:
        """Let the base have the pieces for parameters, and their state."""
        base = self.optimizer.base
        whole = [group["params"] for group in base.param_groups]
        piece_of = {id(p): piece for p, piece in zip(owned.blocks.parameters, owned.pieces, strict=True)}
        for group in base.param_groups:  # the groups themselves, as some bases count in them
            group["params"] = [piece_of[id(p)] for p in group["params"] if id(p) in piece_of]
        base.state = self._state
        try:
            yield base
        finally:
            base.state = defaultdict(dict)
            for group, parameters in zip(base.param_groups, whole, strict=True):
                group["params"] = parameters

    def _spread(self, owned: Ownership, active: Sequence[int]) -> None:
        """Give every rank what the owners have moved."""
        moved, mine = owned.of_ranks, packed(owned.pieces)
        if self.optimizer.mask != "gradient":
            moved = tuple(owned.of_blocks[block] for block in active)
            mine = mine.index_select(0, owned.of_blocks_in_pieces[active[self.ranks.rank]])
        parameters = owned.blocks.parameters
        unpack_(self._placed(mine, moved, packed(parameters)), parameters)

    def _placed(self, mine: Tensor, places: Sequence[Tensor], flat: Tensor) -> Tensor:
        """Send the scalars that are ``mine`` to all, and put everyone's where that rank's belong in ``flat``."""
        received = self.ranks.exchange([mine] * self.ranks.size, [len(indices) for indices in places])
        for part, indices in zip(received, places, strict=True):
            flat.index_copy_(0, indices, part)
        return flat

    def _whole_state(self, owned: Ownership) -> defaultdict[Tensor, Any]:
        """The state of whole parameters, from the pieces of all ranks."""
        whole: defaultdict[Tensor, Any] = defaultdict(dict, self._idle)
        for i, (p, piece) in enumerate(zip(owned.blocks.parameters, owned.pieces, strict=True)):
            for name, value in self._state.get(piece, {}).items():
                whole[p][name] = value
                if isinstance(value, Tensor) and value.shape == piece.shape:
                    flat = value.new_empty(p.numel())
                    whole[p][name] = torch.empty_like(p, dtype=value.dtype, requires_grad=False)
                    unpack_(self._placed(value, owned.of_parameter(i, self.ranks), flat), [whole[p][name]])
        return whole


def piece_of_state(state: dict[str, Any], parameter: Tensor, mine: Tensor) -> dict[str, Any]:
    """The part of a parameter's state that belongs to a piece; what is not by element goes with every piece."""
    return {
        name: x.flatten().index_select(0, mine) if is_by_element(name, x, parameter) else x for name, x in state.items()
    }


def is_by_element(name: str, value: Any, parameter: Tensor) -> bool:
    """Whether an entry of a parameter's state has a value for every scalar; a step count is no such thing."""
    return isinstance(value, Tensor) and value.shape == parameter.shape and name != "step"


def refuse_in_parallel(optimizer: BlockCyclic, ranks: Ranks) -> None:
    """Refuse what cannot be made several steps at a time."""
    if optimizer.order != "cyclic":
        raise InvalidArgumentError(
            "The block-parallel mode needs the blocks in turn, and this method draws them at random: two ranks could "
            "move the same one. Take the methods bcsc or rbc, or the exact mode."
        )
    if optimizer.redraw is not None or optimizer.align or optimizer.exclude:
        raise InvalidArgumentError(
            "The block-parallel mode shares out the blocks of an epoch, with all that is kept of them: it knows no "
            "redraw, align or exclude. Leave them out, or take the exact mode."
        )
    if optimizer.num_blocks % ranks.size != 0:
        raise InvalidArgumentError(
            f"The number of ranks must divide the number of blocks in the block-parallel mode, "
            f"got {ranks.size} ranks and {optimizer.num_blocks} blocks."
        )
    if (optimizer.steps_per_epoch or 0) % ranks.size != 0:
        raise InvalidArgumentError(
            f"The number of ranks must divide steps_per_epoch in the block-parallel mode, where an epoch has whole "
            f"rounds, got {ranks.size} ranks and steps_per_epoch={optimizer.steps_per_epoch}."
        )
    if type(optimizer.base) is not SGD and any(p.dim() == 0 for p in optimizer.epoch_blocks().parameters):
        raise UnsupportedOptimizerError(
            "The block-parallel mode cannot tell a scalar parameter's own state from its step count with a base other "
            "than SGD. Give the parameter a shape of (1,), or take the exact mode."
        )
    if hasattr(optimizer, "eval"):
        raise UnsupportedOptimizerError(
            f"{type(optimizer.base).__name__} makes the weights to be evaluated from its state, of which every rank of "
            "the block-parallel mode has a part. Take the exact mode."
        )
    if not treats_scalars_apart(optimizer.base):
        raise UnsupportedOptimizerError(
            f"{type(optimizer.base).__name__} does not treat every scalar by itself, so its state cannot be shared out "
            "in the block-parallel mode. Take the exact mode."
        )
