"""Which settings of an update mask go together."""

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from bcsc.choices import Mask, Order
from bcsc.errors import InvalidArgumentError


def check_moves(mask: Mask, order: Order, redraw: int | None, *, rescale: bool, align: bool) -> None:
    """Refuse settings of which one would say nothing about the other."""
    if redraw not in (None, 1) and order == "bernoulli":
        raise InvalidArgumentError(f'order="bernoulli" draws anew at every step, got redraw={redraw}. Leave it out.')
    for name, value in (("rescale", rescale), ("align", align)):
        if not isinstance(value, bool):
            raise InvalidArgumentError(f"{name} must be True or False, got {value!r}.")
        if value and mask != "update":
            raise InvalidArgumentError(
                f"{name}=True multiplies the move of the active block, which mask={mask!r} does not tell from the "
                f'momentum of the rest or its state. Take mask="update".'
            )


def checked_exclusion(exclude: Any, parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parameters to exclude, if the base has them all."""
    several = isinstance(exclude, Iterable) and not isinstance(exclude, Tensor | str)
    tensors = tuple(exclude) if several else (exclude,)
    known = set(map(id, parameters))
    for tensor in tensors:
        if id(tensor) not in known:
            what = repr(tensor) if isinstance(tensor, str) else f"something of type {type(tensor).__name__}"
            if isinstance(tensor, Tensor):
                what = f"a tensor of shape {tuple(tensor.shape)}"
            raise InvalidArgumentError(
                f"exclude takes parameters of the base, got {what} that is none of them. "
                "Give for instance exclude=model.embedding.parameters()."
            )
    return tensors
