"""Cut the parameter vector into blocks: a pure function of the seed, the epoch and the shapes.

Paper -> code (Sect. 4.1):  m -> num_scalars,  M -> num_blocks,  P = [P_1 | ... | P_M] -> the label of every scalar:
scalar i is in block j exactly if its label is j. Labels say all that the permutation matrix says about the blocks,
in one byte per scalar for up to 256 blocks.
"""

import heapq
import math
from collections.abc import Callable, Hashable, Sequence
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor

from bcsc.choices import Granularity
from bcsc.errors import InvalidArgumentError
from bcsc.seeding import stream

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
    from typing_extensions import TypeIs

Shape = Sequence[int]
T = TypeVar("T")

MOST_INDEPENDENT = 2**15  # blocks of units that are drawn by themselves; a step counts them all
MOST_DERIVED = 64  # a network that skips layers at random has gradients of ever other parameters
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}  # by size in bytes


def label_dtype(num_blocks: int) -> torch.dtype:
    """The smallest type that holds the labels 0 .. num_blocks - 1."""
    if num_blocks <= 2**8:
        return torch.uint8
    return torch.int16 if num_blocks <= 2**15 else torch.int32


def block_sizes(num_scalars: int, num_blocks: int) -> Tensor:
    """How many scalars each block gets: they differ by at most one."""
    smaller, num_larger = divmod(num_scalars, num_blocks)
    return torch.tensor([smaller + 1] * num_larger + [smaller] * (num_blocks - num_larger), device="cpu")


def draw_independent_labels(num_units: int, num_blocks: int, generator: Generator) -> Tensor:
    """A block for every unit, whatever the others get."""
    return torch.randint(num_blocks, (num_units,), generator=generator, dtype=label_dtype(num_blocks), device="cpu")


def draw_labels(num_scalars: int, num_blocks: int, generator: Generator) -> Tensor:
    """The block of every scalar, all balanced assignments being equally likely.

    The labels are drawn independently and then balanced: randomly chosen scalars of the blocks that came out too
    large go, in random order, to those that came out too small. No scalar is treated differently from another, so
    the result is as uniform as a shuffle, at a fraction of its time.
    """
    labels = draw_independent_labels(num_scalars, num_blocks, generator)
    surplus = torch.bincount(labels, minlength=num_blocks) - block_sizes(num_scalars, num_blocks)
    while (largest := int(surplus.max())) > 0:
        candidates = torch.randint(num_scalars, (2 * num_blocks * largest + 16,), generator=generator, device="cpu")
        candidates = torch.unique(candidates)
        candidates = candidates[torch.randperm(len(candidates), generator=generator, device="cpu")]
        theirs, by_block = torch.sort(labels[candidates].long(), stable=True)
        num_candidates = torch.bincount(theirs, minlength=num_blocks)
        rank_in_block = torch.arange(len(theirs), device="cpu") - (num_candidates.cumsum(0) - num_candidates)[theirs]
        leaving = candidates[by_block[rank_in_block < surplus[theirs]]]
        missing = torch.repeat_interleave(torch.arange(num_blocks, device="cpu"), (-surplus).clamp(min=0))
        joining = missing[torch.randperm(len(missing), generator=generator, device="cpu")][: len(leaving)]
        surplus -= torch.bincount(labels[leaving], minlength=num_blocks)
        surplus += torch.bincount(joining, minlength=num_blocks)
        labels[leaving] = joining.to(labels.dtype)
    return labels


def draw_unit_labels(sizes: Sequence[int], num_blocks: int, generator: Generator) -> Tensor:
    """The block of every unit: in random order, largest first, each goes to the block with the fewest scalars.

    No two blocks then differ by more than the largest unit.
    """
    shuffled = torch.randperm(len(sizes), generator=generator, device="cpu").tolist()
    tie_breaker = torch.randperm(num_blocks, generator=generator, device="cpu").tolist()
    loads = [(0, rank, block) for block, rank in enumerate(tie_breaker)]
    heapq.heapify(loads)
    labels = [0] * len(sizes)
    for unit in sorted(shuffled, key=lambda unit: -sizes[unit]):
        load, rank, block = loads[0]
        labels[unit] = block
        heapq.heapreplace(loads, (load + sizes[unit], rank, block))
    return torch.tensor(labels, dtype=label_dtype(num_blocks), device="cpu")


def unit_shape(shape: Shape, granularity: Granularity) -> tuple[int, ...]:
    """The shape of a tensor's labels: 1 along every dimension whose scalars move together."""
    if granularity == "element":
        return tuple(shape)
    if granularity == "row" and len(shape) > 0:
        return (shape[0], *[1] * (len(shape) - 1))
    return (1,) * len(shape)


def num_units(shapes: Sequence[Shape], granularity: Granularity) -> int:
    """How many units with at least one scalar there are: no more blocks than that can be made."""
    return sum(math.prod(unit_shape(shape, granularity)) for shape in shapes if math.prod(shape) > 0)


def check_num_blocks(
    num_blocks: int, shapes: Sequence[Shape], granularity: Granularity, *, balanced: bool = True
) -> None:
    """Refuse blocks that would have to stay empty, and units of their own that would hardly ever move."""
    most = num_units(shapes, granularity)
    if most == 0:
        raise InvalidArgumentError(
            "The optimizer has no trainable parameters, or they are all excluded: nothing to cut into blocks. "
            "Give it parameters with requires_grad=True."
        )
    if not balanced and num_blocks > MOST_INDEPENDENT:
        raise InvalidArgumentError(
            f'num_blocks={num_blocks} is more than order="bernoulli" can draw from, and a unit would move once in as '
            f"many steps. Take num_blocks <= {MOST_INDEPENDENT}."
        )
    if balanced and num_blocks > most:
        units = {"element": "scalars", "row": "rows", "tensor": "tensors"}[granularity]
        raise InvalidArgumentError(
            f"num_blocks={num_blocks} is more than the {most} trainable {units}. Take num_blocks <= {most}"
            + ("." if granularity == "element" else ", or a finer granularity.")
        )


def draw_blocks(
    shapes: Sequence[Shape],
    num_blocks: int,
    *,
    granularity: Granularity,
    seed: int,
    epoch: int,
    draw: int | None = None,
    balanced: bool = True,
) -> list[Tensor]:
    """For every shape the labels of its units, in a shape that broadcasts to it.

    ``draw`` counts the draws of an epoch that has several. Where the labels need not be balanced, every unit gets its
    own by itself, so that each is in a given block with probability 1 / M.
    """
    check_num_blocks(num_blocks, shapes, granularity, balanced=balanced)
    generator = stream(seed, "blocks", epoch, *([] if draw is None else [draw]))
    units = [unit_shape(shape, granularity) for shape in shapes]
    counts = [math.prod(unit) for unit in units]
    if not balanced:
        labels = draw_independent_labels(sum(counts), num_blocks, generator)
    elif granularity == "element":
        labels = draw_labels(sum(counts), num_blocks, generator)
    else:
        sizes = [
            math.prod(shape) // count if count else 0
            for shape, count in zip(shapes, counts, strict=True)
            for _ in range(count)
        ]
        labels = draw_unit_labels(sizes, num_blocks, generator)
    return [part.view(unit) for part, unit in zip(torch.split(labels, counts), units, strict=True)]


class Place(NamedTuple):
    """Some flat memory: its scalars, the same as integers (a row each), and the parts by parameter."""

    flat: Tensor
    bits: Tensor
    parts: dict[int, Tensor]


class FlatMemory:
    """Memory for parameters of one device and type, end to end; a part of it is laid out like each of them."""

    def __init__(self, indices: Sequence[int], parameters: Sequence[Tensor]) -> None:
        self.indices = list(indices)
        self._layouts = [(p.shape, memory_strides(p)) for p in parameters]
        self._sizes = [p.numel() for p in parameters]
        self._device = parameters[0].device
        self._places: dict[Hashable, Place] = {}

    def place(self, purpose: Hashable, dtype: torch.dtype) -> Place:
        """The memory for a purpose: the same at every call, with what was last written there."""
        if (purpose, dtype) not in self._places:
            flat = torch.empty(sum(self._sizes), dtype=dtype, device=self._device)
            integer = INTEGERS[flat.element_size()]
            bits = flat.view(integer).view(len(flat), flat.element_size() // integer.itemsize)
            parts = zip(self.indices, torch.split(flat, self._sizes), self._layouts, strict=True)
            self._places[purpose, dtype] = Place(flat, bits, {i: x.as_strided(*layout) for i, x, layout in parts})
        return self._places[purpose, dtype]


class EpochBlocks:
    """The blocks of one epoch over some parameters, and what the steps of the epoch derive from them.

    Attributes:
        drawn_from: what the labels are a function of, beside the shapes.
        parameters: the trainable ones.
        number_of: the place of each of them, by its id.
        labels: for each parameter the labels of the scalars that are here, in their shape and memory layout.
        present: for each parameter the blocks that it has scalars of, here or elsewhere.
        present_labels: the same in tensors.
        memories: flat memory for the parameters of each device and type. The labels are in it, under ``"labels"``.
        memory_of: for each parameter the one of the memories that it has its place in.

    Blocks that are drawn more than once an epoch take over the memories of ``like``, of the same parameters.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        labels: Sequence[Tensor],
        *,
        drawn_from: tuple[object, ...] = (),
        present: Sequence[list[int]] | None = None,
        like: "EpochBlocks | None" = None,
    ) -> None:
        self.drawn_from = drawn_from
        self.parameters = list(parameters)
        self.number_of = {id(p): number for number, p in enumerate(self.parameters)}
        self.present = [blocks_among(own) for own in labels] if present is None else list(present)
        self.present_labels = [torch.tensor(own, device="cpu") for own in self.present]
        self.label_dtype = labels[0].dtype
        self.memories: list[FlatMemory] = memories_for(self.parameters) if like is None else like.memories
        self.memory_of = {i: memory for memory in self.memories for i in memory.indices}
        places = [self.memory_of[i].place("labels", self.label_dtype).parts[i] for i in range(len(parameters))]
        parts = [local(sharded_like(p, own)) for p, own in zip(parameters, labels, strict=True)]
        self.labels = [place.copy_(part) for place, part in zip(places, parts, strict=True)]
        self._derived: dict[Hashable, Any] = {}

    def is_over(self, parameters: Sequence[Tensor]) -> bool:
        """Whether these are the parameters, in their order."""
        return len(parameters) == len(self.parameters) and all(map(is_, self.parameters, parameters))

    def derived(self, name: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` returns, kept as long as the blocks are and there is not too much of it."""
        if name not in self._derived:
            if len(self._derived) >= MOST_DERIVED:
                self._derived.clear()
            self._derived[name] = make()
        made: T = self._derived[name]
        return made


def memories_for(parameters: Sequence[Tensor]) -> list[FlatMemory]:
    """Flat memory for the parameters of each device and type."""
    alike: dict[object, list[int]] = {}
    for i, p in enumerate(parameters):
        alike.setdefault((p.device, p.dtype), []).append(i)
    return [FlatMemory(indices, [local(parameters[i]) for i in indices]) for indices in alike.values()]


def blocks_among(labels: Tensor) -> list[int]:
    """The different labels, in order."""
    present: list[int] = torch.bincount(labels.flatten()).nonzero().flatten().tolist()
    return present


def memory_strides(tensor: Tensor) -> tuple[int, ...]:
    """The tensor's own strides if it fills its memory without gaps, else those of a contiguous one."""
    return torch.empty_like(tensor, device="meta").stride()


def is_sharded(tensor: Tensor) -> "TypeIs[DTensor]":
    """Whether a tensor is a ``DTensor``, of which each process has a part."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """What this process has of a tensor: of a ``DTensor`` its shard, of any other all of it."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def sharded_like(parameter: Tensor, units: Tensor) -> Tensor:
    """What is known of the units of a parameter in every process, in shards as the parameter is, without a message."""
    if not is_sharded(parameter):
        return units
    from torch.distributed.tensor import distribute_tensor

    scalars = units.to(parameter.device).expand(parameter.shape)
    return distribute_tensor(scalars, parameter.device_mesh, parameter.placements, src_data_rank=None)


def with_part(tensor: Tensor, part: Tensor) -> Tensor:
    """A tensor in shards as ``tensor`` is, of which this process has ``part``."""
    if not is_sharded(tensor):
        return part
    from torch.distributed.tensor import DTensor

    shape, stride = tensor.shape, tensor.stride()
    return DTensor.from_local(part, tensor.device_mesh, tensor.placements, shape=shape, stride=stride)
