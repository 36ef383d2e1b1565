"""Blocks are disjoint, cover everything, are balanced, and are drawn uniformly from their name."""

import itertools
import math
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from bcsc import BlockCyclic
from bcsc.choices import GRANULARITIES, Granularity
from bcsc.errors import InvalidArgumentError
from bcsc.optim.partition import (
    EpochBlocks,
    draw_blocks,
    draw_labels,
    label_dtype,
    local,
    memories_for,
    num_units,
    unit_shape,
    with_part,
)
from bcsc.seeding import stream

shapes = st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=6).filter(
    lambda shapes: sum(map(math.prod, shapes)) > 0
)


def loads(shapes: list[list[int]], drawn: list[torch.Tensor], num_blocks: int) -> list[int]:
    """Scalars per block."""
    full = [labels.expand(shape).flatten() for shape, labels in zip(shapes, drawn, strict=True)]
    return torch.bincount(torch.cat(full).to(torch.int64), minlength=num_blocks).tolist()


@given(shapes, st.data(), st.sampled_from(GRANULARITIES))
def test_every_scalar_is_in_exactly_one_block_and_no_block_is_empty(shapes, data, granularity: Granularity) -> None:
    num_blocks = data.draw(st.integers(1, num_units(shapes, granularity)))
    drawn = draw_blocks(shapes, num_blocks, granularity=granularity, seed=1, epoch=2)
    sizes = loads(shapes, drawn, num_blocks)
    assert sum(sizes) == sum(map(math.prod, shapes))
    assert len(sizes) == num_blocks
    assert min(sizes) > 0


@given(st.integers(1, 400), st.integers(1, 40), st.integers(0, 5))
def test_element_blocks_differ_by_at_most_one(num_scalars: int, num_blocks: int, epoch: int) -> None:
    num_blocks = min(num_blocks, num_scalars)
    [labels] = draw_blocks([[num_scalars]], num_blocks, granularity="element", seed=0, epoch=epoch)
    sizes = loads([[num_scalars]], [labels], num_blocks)
    assert max(sizes) - min(sizes) <= 1


@given(shapes, st.data(), st.sampled_from(["row", "tensor"]))
def test_unit_blocks_differ_by_at_most_the_largest_unit(shapes, data, granularity: Granularity) -> None:
    num_blocks = data.draw(st.integers(1, num_units(shapes, granularity)))
    drawn = draw_blocks(shapes, num_blocks, granularity=granularity, seed=0, epoch=0)
    sizes = loads(shapes, drawn, num_blocks)
    largest = max(
        math.prod(s) // math.prod(u) for s in shapes for u in [unit_shape(s, granularity)] if math.prod(s) > 0
    )
    assert max(sizes) - min(sizes) <= largest


def test_row_labels_are_one_per_row_and_tensor_labels_one_per_tensor() -> None:
    assert unit_shape((6, 3, 5, 5), "row") == (6, 1, 1, 1)
    assert unit_shape((6, 3, 5, 5), "tensor") == (1, 1, 1, 1)
    assert unit_shape((), "row") == unit_shape((), "element") == ()


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_same_name_same_draw_and_every_epoch_and_seed_another(granularity: Granularity) -> None:
    shapes = [[8, 5], [8], [8, 8], [3], [40, 2], [7], [9], [2, 2]]

    def draw(seed: int, epoch: int) -> list[list]:
        drawn = draw_blocks(shapes, 4, granularity=granularity, seed=seed, epoch=epoch)
        return [labels.flatten().tolist() for labels in drawn]

    draws = {(seed, epoch): draw(seed, epoch) for seed in range(2) for epoch in range(3)}
    assert draws == {name: draw(*name) for name in draws}
    assert all(a != b for a, b in itertools.combinations(draws.values(), 2))


@pytest.mark.parametrize(("num_blocks", "num_bytes"), [(2, 1), (256, 1), (257, 2), (40_000, 4)])
def test_labels_take_one_byte_up_to_256_blocks(num_blocks: int, num_bytes: int) -> None:
    [labels] = draw_blocks([[50_000]], num_blocks, granularity="element", seed=0, epoch=0)
    assert labels.element_size() == num_bytes
    assert len(labels.unique()) == num_blocks


def chi_square(observed: list[float], expected: float) -> float:
    return sum((count - expected) ** 2 / expected for count in observed)


def chi_square_limit(degrees: int) -> float:
    """Exceeded by chance less than once in a million (Wilson-Hilferty with z = 4.75)."""
    return degrees * (1 - 2 / (9 * degrees) + 4.75 * math.sqrt(2 / (9 * degrees))) ** 3


def block_counts(draws: torch.Tensor, num_blocks: int) -> list[float]:
    """How often each scalar was in each block."""
    return [float((draws[:, i] == j).sum()) for i in range(draws.shape[1]) for j in range(num_blocks)]


def test_every_scalar_is_in_every_block_equally_often() -> None:
    num_scalars, num_blocks, epochs = 24, 4, 3000
    name = {"granularity": "element", "seed": 5}
    draws = torch.stack([draw_blocks([[num_scalars]], num_blocks, epoch=e, **name)[0] for e in range(epochs)])
    statistic = chi_square(block_counts(draws, num_blocks), epochs / num_blocks)
    # Balanced blocks take away one degree for every block as well as one for every scalar.
    assert statistic < chi_square_limit((num_scalars - 1) * (num_blocks - 1))


def test_the_uniformity_test_notices_a_slight_preference() -> None:
    num_scalars, num_blocks, epochs = 24, 4, 3000
    generator = stream(0, "test")
    draws = torch.stack([draw_labels(num_scalars, num_blocks, generator) for _ in range(epochs)])
    sticky = torch.rand(epochs, generator=generator) < 0.1  # in one epoch of ten, the scalars stay in order
    draws[sticky] = (torch.arange(num_scalars) % num_blocks).to(torch.uint8)
    statistic = chi_square(block_counts(draws, num_blocks), epochs / num_blocks)
    assert statistic > chi_square_limit((num_scalars - 1) * (num_blocks - 1))


@pytest.mark.parametrize(("num_scalars", "num_blocks", "num_cuts"), [(5, 2, 10), (4, 3, 12), (6, 3, 90)])
def test_all_balanced_cuts_are_equally_likely(num_scalars: int, num_blocks: int, num_cuts: int) -> None:
    generator = stream(7, "test")
    draws = 300 * num_cuts
    seen = Counter(tuple(draw_labels(num_scalars, num_blocks, generator).tolist()) for _ in range(draws))
    assert len(seen) == num_cuts
    assert chi_square(list(seen.values()), draws / num_cuts) < chi_square_limit(num_cuts - 1)


def test_more_blocks_than_units_are_refused_with_the_number_that_fits() -> None:
    with pytest.raises(InvalidArgumentError, match="num_blocks=7 is more than the 6 trainable scalars.*<= 6"):
        draw_blocks([[2, 3]], 7, granularity="element", seed=0, epoch=0)
    with pytest.raises(InvalidArgumentError, match="2 trainable rows.*finer granularity"):
        draw_blocks([[2, 3]], 3, granularity="row", seed=0, epoch=0)
    with pytest.raises(InvalidArgumentError, match="no trainable parameters"):
        draw_blocks([[0, 3]], 1, granularity="tensor", seed=0, epoch=0)


@pytest.mark.parametrize(
    ("shape", "rows"), [((), ()), ((5,), (5,)), ((5, 1), (5, 1)), ((5, 2, 3), (5, 1, 1)), ((0, 3), (0, 1))]
)
def test_a_row_is_a_slice_along_the_first_dimension_of_a_vector_too(shape: tuple, rows: tuple) -> None:
    assert unit_shape(shape, "row") == rows
    assert unit_shape(shape, "element") == shape
    assert unit_shape(shape, "tensor") == (1,) * len(shape)


@pytest.mark.parametrize("num_blocks", [1, 2**8, 2**8 + 1, 2**15, 2**15 + 1])
def test_labels_are_of_the_smallest_type_that_holds_them(num_blocks: int) -> None:
    found, *_ = (kind for kind in (torch.uint8, torch.int16, torch.int32) if torch.iinfo(kind).max >= num_blocks - 1)
    assert label_dtype(num_blocks) == found


def test_blocks_that_are_drawn_anew_inside_an_epoch_take_over_the_memory() -> None:
    parameters = [torch.zeros(4, requires_grad=True), torch.zeros(3, 2, requires_grad=True)]
    optimizer = BlockCyclic(torch.optim.SGD(parameters, lr=0.1), 2, redraw=1)
    first = optimizer.epoch_blocks()
    optimizer.advance()
    second = optimizer.epoch_blocks()
    assert second is not first
    assert [own.data_ptr() for own in second.labels] == [own.data_ptr() for own in first.labels]


def test_there_are_labels_for_every_parameter_and_no_more() -> None:
    parameters, labels = [torch.zeros(2)] * 2, [torch.zeros(2, dtype=torch.uint8)] * 3
    for wrong in (labels[:1], labels):
        with pytest.raises(ValueError, match="argument"):
            EpochBlocks(parameters, wrong)


@pytest.fixture
def shards():
    """Makes of a tensor a parameter in shards, as the second of two processes has it."""
    dist.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    mesh = init_device_mesh("cpu", (2,))
    yield lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)], src_data_rank=None)
    dist.destroy_process_group()


def test_of_a_parameter_in_shards_a_process_has_the_labels_of_its_shard(shards) -> None:
    labels = torch.arange(10, dtype=torch.uint8).view(5, 2)
    blocks = EpochBlocks([shards(torch.zeros(5, 2))], [labels])
    assert blocks.labels[0].tolist() == [[6, 7], [8, 9]]
    assert blocks.present == [list(range(10))]
    by_row = EpochBlocks([shards(torch.zeros(5, 2))], [labels[:, :1]])
    assert by_row.labels[0].tolist() == [[6, 6], [8, 8]]


def test_a_part_of_a_tensor_in_shards_stands_for_the_whole(shards) -> None:
    tensor, part = shards(torch.zeros(2, 5).t()), torch.ones(2, 2)
    whole = with_part(tensor, part)
    assert (whole.device_mesh, whole.placements) == (tensor.device_mesh, tensor.placements)
    assert (whole.shape, whole.stride()) == ((5, 2), tensor.stride())
    assert torch.equal(local(whole), part)
    assert with_part(torch.zeros(2, 2), part) is part


def test_blocks_are_over_the_same_parameters_in_their_order_and_no_others() -> None:
    one, other, third = (torch.zeros(2) for _ in range(3))
    blocks = EpochBlocks([one, other], [torch.tensor([0, 1], dtype=torch.uint8)] * 2)
    assert blocks.is_over([one, other])
    assert not any(map(blocks.is_over, ([other, one], [one, third], [one], [one, other, third])))


def test_parameters_of_other_types_have_memory_of_their_own() -> None:
    tensors = [torch.zeros(2), torch.zeros(3, dtype=torch.float64), torch.zeros(4)]
    assert [memory.indices for memory in memories_for(tensors)] == [[0, 2], [1]]


def drawn_block_by_block(num_scalars: int, num_blocks: int, generator: torch.Generator) -> torch.Tensor:
    """The same draw in the plainest way: every block that is too large gives up its first candidates."""
    labels = torch.randint(num_blocks, (num_scalars,), generator=generator, dtype=label_dtype(num_blocks))
    sizes = torch.tensor([len(part) for part in torch.arange(num_scalars).tensor_split(num_blocks)])
    while (surplus := torch.bincount(labels, minlength=num_blocks) - sizes).max() > 0:
        count = 2 * num_blocks * int(surplus.max()) + 16
        candidates = torch.unique(torch.randint(num_scalars, (count,), generator=generator))
        candidates = candidates[torch.randperm(len(candidates), generator=generator)]
        leaving = [i for j in range(num_blocks) for i in candidates[labels[candidates] == j][: max(0, surplus[j])]]
        missing = torch.tensor([j for j in range(num_blocks) for _ in range(-int(surplus[j]))])
        joining = missing[torch.randperm(len(missing), generator=generator)][: len(leaving)]
        labels[torch.tensor(leaving, dtype=torch.long)] = joining.to(labels.dtype)
    return labels


@pytest.mark.parametrize(("num_scalars", "num_blocks"), [(7, 3), (100, 7), (1000, 16), (3000, 300), (400, 400)])
def test_labels_are_drawn_as_block_by_block(num_scalars: int, num_blocks: int) -> None:
    drawn, plain = (draw(num_scalars, num_blocks, stream(0, "p")) for draw in (draw_labels, drawn_block_by_block))
    assert torch.equal(drawn, plain)


def test_what_is_made_for_ever_other_parameters_is_not_kept_for_ever() -> None:
    parameters = [torch.zeros(2) for _ in range(2)]
    blocks = EpochBlocks(parameters, [torch.zeros(2, dtype=torch.uint8) for _ in parameters])
    for number in range(1000):
        assert blocks.derived(("layout", number), lambda number=number: [number]) == [number]
    assert len(blocks._derived) <= 64
    assert blocks.derived(("layout", 999), lambda: ["made again"]) == [999]
