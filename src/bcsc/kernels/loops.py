"""The loops that Numba compiles. Only ``passes`` imports this module, if Numba is there.

A loop over scalars works on pieces of tensors. Column t of ``addresses`` says where in memory the tensors of parameter
t begin, the labels of its scalars last; row k of ``pieces`` is a parameter, and the first scalar and the end of a piece
of it. Loops let go of the interpreter's lock, so that threads can share the pieces.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple

from numba import carray, float32, njit, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic


class Kernel:
    """A function that is compiled when it is first called, and kept on disk where that is possible.

    Numba may mix up what two processes keep at the same time under one name. So the name says all that the machine code
    depends on: ``variant``, and the processor. Whatever is wrong with the disk, no space or half a file or no folder,
    the function is compiled in memory alone.
    """

    def __init__(self, function: Callable[..., Any], *variant: object) -> None:
        processor = sha256(repr(cpu_target.target_context.codegen().magic_tuple()).encode()).hexdigest()[:12]
        function.__qualname__ = "_".join(map(str, (function.__name__, *variant, processor)))
        self._function = function
        self._is_kept = True
        try:
            self._compiled = njit(nogil=True, cache=True)(function)
        except RuntimeError:  # there is no folder to keep it in
            self._compile_in_memory()

    def __call__(self, *arguments: Any) -> Any:
        try:
            return self._compiled(*arguments)
        except Exception:  # loops raise nothing: it was found before they began
            if not self._is_kept:
                raise
            self._compile_in_memory()
            return self._compiled(*arguments)

    def _compile_in_memory(self) -> None:
        self._is_kept = False
        self._compiled = njit(nogil=True)(self._function)


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
def sgd_kernel(options: SgdOptions, number: str, label: str) -> Kernel:
    """One step of ``torch.optim.SGD`` on a block, rounded as torch rounds it.

    torch fuses products and sums where ``fma`` is. Its fused step handles the last scalars of a tensor, fewer than a
    register holds, by themselves and rounds their momentum elsewhere: ``width`` says how many a register holds, or 1.
    """
    gradient_is_masked, state_is_masked = options.mask == "gradient", options.mask == "all"
    decays, has_momentum = options.decays, options.has_momentum
    nesterov, maximize = options.nesterov, options.maximize

    def sgd(addresses, pieces, begin, end, width, sizes, block, zero, rate, decay, momentum, share):
        number_size, label_size = sizes
        for k in range(begin, end):
            t, start, length = pieces[k, 0], pieces[k, 1], pieces[k, 2] - pieces[k, 1]
            p = carray(pointer(addresses[0, t] + start * number_size, zero), length)
            g = carray(pointer(addresses[1, t] + start * number_size, zero), length)
            m = carray(pointer(addresses[2, t] + start * number_size, zero), length)
            labels = carray(pointer(addresses[3, t] + start * label_size, block), length)
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

    return Kernel(sgd, *options, number, label)


@cache
def merge_kernel(zeros_outside: bool, number: str, label: str) -> Kernel:
    """Copy a second tensor to the first, as integers of their size: outside the block, or inside with zeros outside."""

    def merge(addresses, pieces, begin, end, sizes, block, zero):
        number_size, label_size = sizes
        for k in range(begin, end):
            t, start, length = pieces[k, 0], pieces[k, 1], pieces[k, 2] - pieces[k, 1]
            to = carray(pointer(addresses[0, t] + start * number_size, zero), length)
            source = carray(pointer(addresses[1, t] + start * number_size, zero), length)
            labels = carray(pointer(addresses[2, t] + start * label_size, block), length)
            for i in range(length):
                inside = labels[i] == block
                if zeros_outside:
                    to[i] = source[i] if inside else zero
                else:
                    to[i] = to[i] if inside else source[i]

    return Kernel(merge, zeros_outside, number, label)


@cache
def feed_kernel() -> Kernel:
    """Gather, crop, flip and normalise images; says whether all of ``indices`` are of images.

    ``spread`` has a row of four per image: its index, its first row and column on the image, and whether it is flipped.
    """

    def feed(addresses, spread, begin, end, num_images, shape, scale, shift, byte, zero):
        for k in range(begin, end):
            if spread[k, 0] < 0 or spread[k, 0] >= num_images:
                return False
        num_channels, height, width, size = shape
        images = carray(pointer(addresses[0], byte), num_images * num_channels * height * width)
        out = carray(pointer(addresses[1], zero), end * num_channels * size * size)
        for k in range(begin, end):
            index, top, left, flip = spread[k, 0], spread[k, 1], spread[k, 2], spread[k, 3]
            first, last = min(max(0, -left), size), max(min(size, width - left), 0)
            for c in range(num_channels):
                a, b = scale[c], shift[c]
                black = zero * a + b
                for row in range(size):
                    y, to = row + top, ((k * num_channels + c) * size + row) * size
                    if y < 0 or y >= height:
                        for x in range(size):
                            out[to + x] = black
                        continue
                    line = ((index * num_channels + c) * height + y) * width
                    for x in range(first):
                        out[to + x] = black
                    if flip:
                        for x in range(first, last):
                            out[to + x] = float32(images[line + width - 1 - left - x]) * a + b
                    else:
                        for x in range(first, last):
                            out[to + x] = float32(images[line + left + x]) * a + b
                    for x in range(last, size):
                        out[to + x] = black
        return True

    return Kernel(feed)
