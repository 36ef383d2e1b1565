"""The loops that Numba compiles. Only ``one_pass`` imports this module, if Numba is there.

A kernel works on pieces of tensors. Row t of ``addresses`` says where in memory the tensors of parameter t begin, the
labels of its scalars last; row k of ``pieces`` is a parameter, and the first scalar and the end of a piece of it.
Kernels let go of the interpreter's lock, so that threads can share the pieces.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

from numba import carray, njit, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function when it is first called; keep it on disk where that is possible."""
    try:
        kernel: Function = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # there is no folder to keep it in
        kernel = njit(nogil=True)(function)
    return kernel


@intrinsic
def fma(_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return a(a, a, a), lambda _context, builder, _signature, arguments: builder.fma(*arguments)


@intrinsic
def pointer(_context: Any, address: Any, like: Any) -> Any:
    """An address in memory as that of numbers of one type."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like)(address, like), generate


class SgdOptions(NamedTuple):
    """What the step of SGD is compiled for."""

    mask: str
    decays: bool
    has_momentum: bool
    nesterov: bool
    maximize: bool


@cache
def sgd_kernel(options: SgdOptions) -> Callable[..., None]:
    """One step of ``torch.optim.SGD`` on a block, rounded as torch rounds it.

    torch fuses products and sums where ``fma`` is. Its fused step handles the last scalars of a tensor, fewer than a
    register holds, by themselves and rounds their momentum elsewhere: ``width`` says how many a register holds, or 1.
    """
    gradient_is_masked, state_is_masked = options.mask == "gradient", options.mask == "all"
    decays, has_momentum = options.decays, options.has_momentum
    nesterov, maximize = options.nesterov, options.maximize

    def kernel(addresses, pieces, begin, end, width, sizes, block, zero, rate, decay, momentum, share):
        number_size, label_size = sizes
        for k in range(begin, end):
            t, start, length = pieces[k, 0], pieces[k, 1], pieces[k, 2] - pieces[k, 1]
            p = carray(pointer(addresses[t, 0] + start * number_size, zero), length)
            g = carray(pointer(addresses[t, 1] + start * number_size, zero), length)
            m = carray(pointer(addresses[t, 2] + start * number_size, zero), length)
            labels = carray(pointer(addresses[t, 3] + start * label_size, block), length)
            body = length - length % width
            for tail in range(2):
                for i in range(body if tail else 0, length if tail else body):
                    inside = labels[i] == block
                    step = g[i] if inside or not gradient_is_masked else zero
                    if maximize:
                        step = -step
                    if decays:
                        step = fma(p[i], decay, step)
                    if has_momentum:
                        new = fma(momentum, m[i], share * step) if tail else fma(share, step, momentum * m[i])
                        m[i] = new if inside or not state_is_masked else m[i]
                        step = fma(momentum, new, step) if nesterov else new
                    p[i] = fma(step, rate, p[i]) if inside or gradient_is_masked else p[i]

    return compiled(kernel)


@compiled
def put_back(addresses, pieces, begin, end, sizes, block, zero):
    """Outside the block, copy the second tensor to the first, as integers of their size."""
    number_size, label_size = sizes
    for k in range(begin, end):
        t, start, length = pieces[k, 0], pieces[k, 1], pieces[k, 2] - pieces[k, 1]
        new = carray(pointer(addresses[t, 0] + start * number_size, zero), length)
        old = carray(pointer(addresses[t, 1] + start * number_size, zero), length)
        labels = carray(pointer(addresses[t, 2] + start * label_size, block), length)
        for i in range(length):
            if labels[i] != block:
                new[i] = old[i]
