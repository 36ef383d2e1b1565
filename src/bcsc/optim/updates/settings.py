"""Which settings of an update mask go together."""

from collections.abc import Iterable, Sequence

from torch import Tensor

from bcsc.choices import Mask, Order
from bcsc.errors import InvalidArgumentError, check_at_least


def check_moves(mask: Mask, order: Order, redraw: int | None, *, rescale: bool, align: bool) -> None:
    """Refuse settings of which one would say nothing about the other."""
    if redraw is not None and check_at_least("redraw", redraw, 1) != 1 and order == "bernoulli":
        raise InvalidArgumentError(f'order="bernoulli" draws anew at every step, got redraw={redraw}. Leave it out.')
    for name, value in (("rescale", rescale), ("align", align)):
        if not isinstance(value, bool):
            raise InvalidArgumentError(f"{name} must be True or False, got {value!r}.")
        if value and mask != "update":
            raise InvalidArgumentError(
                f"{name}=True multiplies the move of the active block, which mask={mask!r} does not tell from the "
                f'momentum of the rest or its state. Take mask="update".'
            )


def checked_exclusion(exclude: Iterable[Tensor], parameters: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The parameters to exclude, if the base has them all."""
    tensors = [exclude] if isinstance(exclude, Tensor) else list(exclude)
    known = set(map(id, parameters))
    for tensor in tensors:
        if id(tensor) not in known:
            what = f"a tensor of shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else repr(tensor)
            raise InvalidArgumentError(
                f"exclude takes parameters of the base, got {what} that is none of them. "
                "Give for instance exclude=model.embedding.parameters()."
            )
    return tuple(tensors)
