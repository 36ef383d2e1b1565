"""The step of ``torch.optim.SGD`` on one block, without the copies that other bases need.

It gives the bits of the general way (``bcsc.optim.masking``).

Parameters are stepped in pieces, so that every operation on a piece finds it in the cache; and the block is selected
by arithmetic, which torch does many scalars at a time, where boolean masks take them one by one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.sgd import sgd

from bcsc.choices import Mask
from bcsc.optim.masking import Share

PIECE = 2**18  # scalars: the parameters, gradients and momenta of a piece take 3 MB
INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}  # to handle floats as the bits they are
OPTIONS = ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")
Options = Mapping[str, Any]


class Strip(NamedTuple):
    """A parameter, or a part of one, with what belongs to it."""

    parameter: Tensor
    gradient: Tensor
    labels: Tensor
    momentum: Tensor | None


class Piece(NamedTuple):
    """Strips that step together, as torch takes them: list by list. Without momentum there are no momenta."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    labels: list[Tensor]
    momenta: list[Tensor]

    def step(self, options: Options) -> None:
        """SGD's own step, on everything."""
        sgd(self.parameters, self.gradients, self.momenta, **options)  # type: ignore[arg-type]

    def inside(self, block: int, dtype: torch.dtype) -> list[Tensor]:
        """One inside the block, zero outside."""
        return [torch.eq(x, block, out=torch.empty_like(x, dtype=dtype)) for x in self.labels]


def step_as_sgd(base: Optimizer, shares: Sequence[Share], mask: Mask) -> bool:
    """Make the step if it can be made this way, and say whether it was."""
    if type(base) is not SGD or is_watched(base):
        return False
    share_of = {share.parameter: share for share in shares}
    groups = [(group, [share_of[p] for p in group["params"] if p in share_of]) for group in base.param_groups]
    strips = [[strip_of(base, group, share) for share in own] for group, own in groups]
    if sum(map(len, strips)) != len(shares) or any(strip is None for own in strips for strip in own):
        return False
    for (group, own), own_strips in zip(groups, strips, strict=True):
        # One by one instead of foreach, which gives the same bits but may write into the gradients.
        options = {name: group[name] for name in OPTIONS} | {"fused": bool(group["fused"]), "foreach": False}
        move = move_whole if all(share.whole for share in own) else MOVES[mask]
        for piece in pieces(strip for strip in own_strips if strip is not None):
            move(piece, shares[0].block, options)
    return True


def is_watched(base: Optimizer) -> bool:
    """Whether someone counts on the base's own ``step`` being called: a hook, or a scheduler."""
    return bool("step" in vars(base) or base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks)


def strip_of(base: SGD, group: Options, share: Share) -> Strip | None:
    """What the step needs of a parameter, if it is all there and can be cut up."""
    p, gradient, momentum = share.parameter, share.gradient, None
    if type(group["lr"]) not in (int, float) or type(group["weight_decay"]) not in (int, float):
        return None
    if group["momentum"]:
        momentum = base.state[p].get("momentum_buffer")  # absent before the first step
        if momentum is None or not laid_out_alike(p, momentum):
            return None
    return Strip(p, gradient, share.labels, momentum) if laid_out_alike(p, gradient) else None


def laid_out_alike(p: Tensor, other: Tensor) -> bool:
    """Whether both are floats on the CPU, dense, with their scalars in the same order."""
    if p.device.type != "cpu" or p.dtype not in INTEGERS or other.dtype != p.dtype:
        return False
    if p.is_contiguous():
        return other.is_contiguous()
    return p.is_contiguous(memory_format=torch.channels_last) and other.stride() == p.stride()


def pieces(strips: Iterable[Strip]) -> Iterator[Piece]:
    """Large strips cut up, small ones together, up to ``PIECE`` scalars."""
    together: list[Strip] = []
    size = 0
    for strip in strips:
        length = strip.parameter.numel()
        if length > PIECE:
            yield from (as_piece([part]) for part in parts(strip))
            continue
        if size + length > PIECE:
            yield as_piece(together)
            together, size = [], 0
        together.append(strip)
        size += length
    if together:
        yield as_piece(together)


def parts(strip: Strip) -> Iterator[Strip]:
    """A strip cut up; labels that stand for several scalars are written out first."""
    p, labels = strip.parameter, strip.labels
    if labels.shape != p.shape:
        labels = torch.empty_like(p, dtype=labels.dtype, requires_grad=False).copy_(labels)
    columns = [torch.split(flat(x), PIECE) for x in (p, strip.gradient, labels)]
    momenta = [None] * len(columns[0]) if strip.momentum is None else torch.split(flat(strip.momentum), PIECE)
    return map(Strip, *columns, momenta)


def flat(tensor: Tensor) -> Tensor:
    """The scalars in their order in memory."""
    return tensor.view(-1) if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))


def as_piece(strips: Sequence[Strip]) -> Piece:
    """The strips list by list."""
    parameters, gradients, labels, momenta = zip(*strips, strict=True)
    return Piece(list(parameters), list(gradients), list(labels), [x for x in momenta if x is not None])


def move_whole(piece: Piece, block: int, options: Options) -> None:
    """Everything is in the block."""
    piece.step(options)


def move_masking_update(piece: Piece, block: int, options: Options) -> None:
    """Let the momenta learn from the whole gradient, then move the block along them."""
    if options["momentum"] and not options["nesterov"]:
        # On a copy: even a step of length zero can change the sign of a zero, or lose a scalar to an infinite momentum.
        piece._replace(parameters=[p.clone() for p in piece.parameters]).step({**options, "lr": 0.0})
        dtype = piece.parameters[0].dtype
        momenta_inside = torch._foreach_mul(bits(piece.momenta), piece.inside(block, INTEGERS[dtype]))
        # Outside the block -lr times a zero is added, which is a negative zero, and so changes no bit.
        torch._foreach_add_(piece.parameters, [x.view(dtype) for x in momenta_inside], alpha=-options["lr"])
    else:
        moved = [p.clone() for p in piece.parameters]
        piece._replace(parameters=moved).step(options)
        take_inside(piece, block, piece.parameters, moved)


def move_masking_gradient(piece: Piece, block: int, options: Options) -> None:
    """Step everything, on a gradient that is zero outside the block."""
    masked = torch._foreach_mul(bits(piece.gradients), piece.inside(block, INTEGERS[piece.gradients[0].dtype]))
    piece._replace(gradients=[x.view(piece.gradients[0].dtype) for x in masked]).step(options)


def move_masking_all(piece: Piece, block: int, options: Options) -> None:
    """Step a copy of everything, and take the block from it."""
    moved, learned = [p.clone() for p in piece.parameters], [x.clone() for x in piece.momenta]
    piece._replace(parameters=moved, momenta=learned).step(options)
    take_inside(piece, block, piece.parameters + piece.momenta, moved + learned)


def take_inside(piece: Piece, block: int, tensors: list[Tensor], news: list[Tensor]) -> None:
    """Inside the block, give the tensors their new bits. Uses up ``news``."""
    inside = piece.inside(block, INTEGERS[news[0].dtype]) * (len(news) // len(piece.parameters))
    differences = bits(news)
    torch._foreach_sub_(differences, bits(tensors))
    torch._foreach_addcmul_(bits(tensors), differences, inside)


def bits(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The floats as integers of the same width: sums and products with 0 and 1 lose nothing, not even of NaN."""
    return [x.view(INTEGERS[x.dtype]) for x in tensors]


MOVES: Mapping[Mask, Callable[[Piece, int, Options], None]] = {
    "update": move_masking_update,
    "gradient": move_masking_gradient,
    "all": move_masking_all,
}
