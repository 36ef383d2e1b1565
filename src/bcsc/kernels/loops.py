"""The loops that Numba compiles. Only ``passes`` imports this module, if Numba is there.

A loop over scalars works on pieces of tensors. Column t of ``addresses`` says where in memory the tensors of parameter
t begin, the labels of its scalars last; row k of ``pieces`` is a parameter, and the first scalar and the end of a piece
of it. Loops let go of the interpreter's lock, so that threads can share the pieces.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
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
            self._compiled = njit(nogil=True, cache=True, error_model="numpy")(function)  # x / 0 is no error
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
        self._compiled = njit(nogil=True, error_model="numpy")(self._function)


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


@intrinsic
def ask_for_line(_context: Any, address: Any) -> Any:
    """Ask for the line of memory at an address, without waiting for it; an address of nothing does no harm."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        to_read, to_keep, data = (number(value) for value in (0, 3, 1))
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind), [place, to_read, to_keep, data]
        )

    return types.void(address), generate


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
            labels = carray(pointer(addresses[-1, t] + start * label_size, block), length)
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


class AdamOptions(NamedTuple):
    """What the step of Adam is compiled for; decay is ``"none"``, ``"coupled"`` (Adam) or ``"decoupled"`` (AdamW)."""

    mask: str
    decay: str
    maximize: bool


@cache
def adam_kernel(options: AdamOptions, number: str, label: str) -> Kernel:
    """One step of a fused ``torch.optim.Adam`` or ``AdamW`` on a block, rounded as torch rounds it.

    As with SGD, the last scalars of a tensor are rounded elsewhere: here their squares. Row t of ``rates`` has what
    depends on how many steps parameter t has made: the rate, and the root of the bias of the squares.
    """
    gradient_is_masked, state_is_masked = options.mask == "gradient", options.mask == "all"
    is_coupled, is_decoupled = options.decay == "coupled", options.decay == "decoupled"
    maximize = options.maximize

    def adam(addresses, pieces, begin, end, width, sizes, block, zero, decay, share, beta, square_share, eps, rates):
        number_size, label_size = sizes
        for k in range(begin, end):
            t, start, length = pieces[k, 0], pieces[k, 1], pieces[k, 2] - pieces[k, 1]
            p = carray(pointer(addresses[0, t] + start * number_size, zero), length)
            g = carray(pointer(addresses[1, t] + start * number_size, zero), length)
            m = carray(pointer(addresses[2, t] + start * number_size, zero), length)
            v = carray(pointer(addresses[3, t] + start * number_size, zero), length)
            labels = carray(pointer(addresses[4, t] + start * label_size, block), length)
            rate, root = rates[t, 0], rates[t, 1]
            body = length - length % width
            for tail in range(2):
                for i in range(body if tail else 0, length if tail else body):
                    inside = labels[i] == block
                    step = g[i] if inside or not gradient_is_masked else zero
                    if maximize:
                        step = -step
                    if is_coupled:
                        step = fma(p[i], decay, step)
                    mean = fma(share, step - m[i], m[i])
                    square = (
                        fma(beta, v[i], square_share * step * step)
                        if tail
                        else fma(square_share * step, step, beta * v[i])
                    )
                    m[i] = mean if inside or not state_is_masked else m[i]
                    v[i] = square if inside or not state_is_masked else v[i]
                    moved = (p[i] * decay if is_decoupled else p[i]) + rate * mean / (sqrt(square) / root + eps)
                    p[i] = moved if inside or gradient_is_masked else p[i]

    return Kernel(adam, *options, number, label)


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
    """Gather, crop, flip and normalise images; says whether all indices are of images, and does nothing if not.

    Augmentation ``(flip * n + top) * n + left``, with n = 2 * padding + 1, begins ``top`` rows and ``left`` columns in,
    on a black ground with ``padding`` pixels to spare around the image. A crop that is as wide as what it is cut from
    is one stretch of memory: its rows are normalised all at once, and what came around an edge is blackened. What is
    flipped or smaller than the result is first laid out, as bytes.
    One array says it all, as every further argument takes time. It has the addresses of the images, of the result, of
    the indices and of the augmentations; the number of images, of channels, of rows, of columns, the size of the
    result, the padding and the number of indices; and the addresses of scale and shift.
    """

    def feed(plan):
        num_images, num_channels, height, width, size = plan[4], plan[5], plan[6], plan[7], plan[8]
        padding, count, byte, zero = plan[9], plan[10], np.uint8(0), np.float32(0)
        indices, augmentations = carray(pointer(plan[2], count), count), carray(pointer(plan[3], count), count)
        scale = carray(pointer(plan[11], zero), num_channels)
        shift = carray(pointer(plan[12], zero), num_channels)
        for k in range(count):
            if indices[k] < 0 or indices[k] >= num_images:
                return False
        above, before, num_shifts = (size - height) // 2, (size - width) // 2, 2 * padding + 1
        spare = np.zeros(size * size, np.uint8)
        ground = spare.ctypes.data
        for k in range(count):
            top, left = augmentations[k] // num_shifts % num_shifts - padding, augmentations[k] % num_shifts - padding
            is_flipped = augmentations[k] >= num_shifts * num_shifts
            begin, end = max(0, -top) * size, min(size, size - top) * size
            if begin >= end or abs(left) >= size:
                begin = end = 0
            for c in range(num_channels):
                by, plus = scale[c], shift[c]
                black = zero * by + plus
                image = plan[0] + (indices[k] * num_channels + c) * height * width
                following = image + (indices[min(k + 1, count - 1)] - indices[k]) * num_channels * height * width
                for line in range(0, height * width, 64):
                    ask_for_line(following + line)
                place = plan[1] + 4 * (k * num_channels + c) * size * size
                out = carray(pointer(place, zero), size * size)
                length = end - begin - abs(left)
                inner = carray(pointer(place + 4 * (begin + max(0, -left)), zero), length)
                skipped = begin + top * size + max(0, left)
                pixels = carray(pointer(image + skipped, byte), length)
                if is_flipped or height < size or width < size:
                    for y in range(height):
                        row = carray(pointer(image + y * width, byte), width)
                        line = carray(pointer(ground + (above + y) * size + before, byte), width)
                        if is_flipped:
                            for x in range(width):
                                line[x] = row[np.uint64(width - 1 - x)]  # so no sign is looked at
                        else:
                            for x in range(width):
                                line[x] = row[x]
                    pixels = carray(pointer(ground + skipped, byte), length)
                for x in range(length):
                    inner[x] = float32(pixels[x]) * by + plus
                for x in range(begin):
                    out[x] = black
                for x in range(end, size * size):
                    out[x] = black
                for start in range(begin, end, size):
                    for x in range(-left):
                        out[start + x] = black
                    for x in range(size - left, size):
                        out[start + x] = black
        return True

    return Kernel(feed)
