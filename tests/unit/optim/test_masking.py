"""The three masks to the bit, and what a step costs: a few operations, however many tensors there are."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import bcsc
from bcsc.choices import GRANULARITIES, MASKS
from bcsc.distributed.block_gradients import sum_gradients
from bcsc.distributed.collectives import Ranks
from bcsc.optim.masking import has_begun, lent_gradients, step_all_and_put_back, step_base, step_tensors_of_block
from bcsc.optim.updates.active_block import ActiveBlock
from benchmarks.goals.step import MOST_OPERATIONS
from benchmarks.operations import BASES, counted, network_without_numbers
from tests.without_numba import without_numba

SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 2.0**-120, 3e38]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet18", "dpn92"])
@pytest.mark.parametrize("base", BASES)
def test_a_step_takes_a_few_operations_more_than_its_base_and_waits_for_nothing(model: str, base: str) -> None:
    parameters = network_without_numbers(model)
    bare = BASES[base](parameters)
    bare.step()
    alone = counted(bare.step)
    for mask in MASKS:
        optimizer = bcsc.BlockCyclic(BASES[base](parameters), 2, mask=mask, granularity="row")
        for _ in range(2):
            optimizer.step()
        blockwise = counted(optimizer.step)
        assert blockwise.counts.total() <= alone.counts.total() + 15 < alone.counts.total() + MOST_OPERATIONS
        assert blockwise.waiting() == alone.waiting()
        assert not {name for name in blockwise.counts - alone.counts if "empty" in name or "new" in name}


@pytest.mark.parametrize("mask", MASKS)
def test_an_exchange_waits_for_the_device_once_an_epoch(mask: str) -> None:
    parameters = [nn.Parameter(torch.ones(5, 7)), nn.Parameter(torch.ones(3))]
    optimizer = bcsc.BlockCyclic(torch.optim.SGD(parameters, lr=0.1), 3, mask=mask)
    for epoch in range(2):
        optimizer.set_epoch(epoch)
        for step in range(4):
            for p in parameters:
                p.grad = torch.ones_like(p)
            exchange = counted(lambda: sum_gradients(optimizer, Ranks()))
            assert step == 0 or exchange.waiting() == 0
            optimizer.step()


def special_tensor(shape: list[int], dtype: torch.dtype, layout: str, seed: int) -> Tensor:
    """Numbers of all kinds, in one of several layouts."""
    generator = torch.Generator().manual_seed(seed)
    pick = torch.randint(len(SPECIAL), shape, generator=generator)
    values = torch.where(
        torch.rand(shape, generator=generator) < 0.5,
        torch.tensor(SPECIAL)[pick],
        torch.randn(shape, generator=generator),
    )
    values = (values.nan_to_num(posinf=1, neginf=-1) if dtype.is_complex else values).to(dtype)
    if layout == "channels_last" and len(shape) == 4:
        return values.to(memory_format=torch.channels_last)
    if layout == "gaps" and shape:
        return torch.stack([values, values], dim=-1)[..., 0]
    return values.transpose(0, -1).contiguous().transpose(0, -1) if layout == "transposed" and shape else values


def as_bits(tensor: Tensor) -> Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8)


def assert_same(one: Tensor, other: Tensor) -> None:
    """The same bits; arithmetic may give either NaN, so any equals any."""
    one, other = one.detach(), other.detach()
    assert torch.equal(one.isnan(), other.isnan())
    assert torch.equal(as_bits(torch.where(one.isnan(), 0, one)), as_bits(torch.where(other.isnan(), 0, other)))


def expected_step(optimizer: bcsc.BlockCyclic, parameters: list[Tensor], mask: str) -> tuple[list[Tensor], list[dict]]:
    """One step, mask by mask in so many words: a copy of the base steps, and what must stay is selected back."""
    base, twins = copy.deepcopy((optimizer.base, parameters))
    inside = [labels == optimizer.block for labels in optimizer.epoch_blocks().labels]
    for twin, p, here in zip(twins, parameters, inside, strict=True):
        twin.grad = torch.where(here, p.grad, 0) if mask == "gradient" else p.grad.clone()
    base.step()
    if mask == "gradient":
        return twins, [base.state[twin] for twin in twins]
    moved = [torch.where(here, twin, p) for here, twin, p in zip(inside, twins, parameters, strict=True)]
    states = [dict(base.state[twin]) for twin in twins]
    if mask == "all":
        for state, p, here in zip(states, parameters, inside, strict=True):
            for name, value in state.items():
                if value.shape == p.shape and p.dim() > 0:
                    state[name] = torch.where(here, value, optimizer.state[p].get(name, torch.zeros_like(value)))
    return moved, states


tensors = st.lists(
    st.tuples(
        st.lists(st.integers(1, 5), max_size=4),
        st.sampled_from(DTYPES),
        st.sampled_from(["plain", "channels_last", "gaps", "transposed"]),
    ),
    min_size=1,
    max_size=4,
)


@given(tensors, st.sampled_from(MASKS), st.sampled_from(GRANULARITIES), st.integers(0, 1000), st.booleans())
def test_every_mask_does_what_its_words_say_to_the_bit(drawn, mask: str, granularity: str, seed: int, numba) -> None:
    with without_numba(really=not numba):
        check_mask(drawn, mask, granularity, seed)


def check_mask(drawn, mask: str, granularity: str, seed: int) -> None:
    parameters = [nn.Parameter(special_tensor(*each, seed + i)) for i, each in enumerate(drawn)]
    num_units = {
        "element": sum(p.numel() for p in parameters),
        "row": sum(p.shape[0] if p.dim() else 1 for p in parameters),
    }
    # Powers of two, as with others torch rounds differently in different layouts.
    base = torch.optim.SGD(parameters, lr=0.125, momentum=0.5, foreach=True, nesterov=seed % 2 == 0)
    num_blocks = min(3, num_units.get(granularity, len(parameters)))
    optimizer = bcsc.BlockCyclic(base, num_blocks, mask=mask, granularity=granularity)
    for step in range(4):
        for i, (p, each) in enumerate(zip(parameters, drawn, strict=True)):
            p.grad = special_tensor(*each, seed + 100 * step + i)
        gradients = [p.grad.clone() for p in parameters]
        moved, states = expected_step(optimizer, parameters, mask)
        idle = [(labels != optimizer.block).all() for labels in optimizer.epoch_blocks().labels]
        optimizer.step()
        for p, expected, state, gradient, sits_out in zip(parameters, moved, states, gradients, idle, strict=True):
            assert_same(p, expected)
            assert torch.equal(as_bits(p.grad), as_bits(gradient))
            if not (mask == "all" and sits_out):
                assert_same(optimizer.state[p]["momentum_buffer"], state["momentum_buffer"])


@pytest.mark.parametrize("mask", ["update", "all"])
def test_outside_the_block_not_even_the_sign_of_a_zero_changes(mask: str) -> None:
    p = nn.Parameter(torch.tensor([0.0, -0.0, 1.0, float("nan")] * 16))
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1, momentum=0.9), 4, mask=mask)
    for gradient in (1.0, -1.0, float("inf"), float("nan")):
        before, outside = p.detach().clone(), optimizer.epoch_blocks().labels[0] != optimizer.block
        p.grad = torch.full_like(p, gradient)
        optimizer.step()
        assert torch.equal(p.detach()[outside].view(torch.int32), before[outside].view(torch.int32))


@pytest.mark.parametrize("mask", MASKS)
def test_a_tensor_may_be_replaced_or_moved_to_another_layout_inside_an_epoch(mask: str) -> None:
    def run(change: bool) -> Tensor:
        p = nn.Parameter(torch.linspace(-1, 1, 24).view(1, 2, 3, 4))
        optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1, momentum=0.9, nesterov=True), 3, mask=mask)
        for step in range(6):
            if change and step == 3:
                p.data = p.detach().clone(memory_format=torch.channels_last)
            p.grad = torch.full_like(p, 0.5 + step)
            optimizer.step()
        return p.detach().contiguous()

    assert torch.equal(run(change=True), run(change=False))


def test_a_parameter_without_gradient_is_not_even_written_to() -> None:
    used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([used, unused], lr=0.1), 2)
    used.grad = torch.ones(3)
    version = unused._version
    optimizer.step()
    assert unused._version == version
    assert used._version > 0


def test_hooks_and_schedulers_on_the_base_see_its_steps() -> None:
    p = nn.Parameter(torch.ones(10))
    base = torch.optim.SGD([p], lr=0.1)
    calls = []
    base.register_step_post_hook(lambda *_: calls.append("stepped"))
    optimizer = bcsc.BlockCyclic(base, 2)
    p.grad = torch.ones(10)
    optimizer.step()
    assert calls == ["stepped"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("more", [{}, {"dampening": 0.25}, {"nesterov": True}], ids=str)
def test_fused_sgd_steps_as_the_plain_one_does_where_a_tensor_gets_its_first_gradient_late(mask: str, more) -> None:
    ends = []
    for fused in (False, True):
        early, late = nn.Parameter(torch.ones(3, 2)), nn.Parameter(torch.ones(4))
        base = torch.optim.SGD([early, late], lr=0.125, momentum=0.5, fused=fused, **more)
        optimizer = bcsc.BlockCyclic(base, num_blocks=2, mask=mask)
        for step in range(6):
            early.grad = torch.full_like(early, step)
            late.grad = torch.full_like(late, step) if step > 2 else None
            optimizer.step()
        ends.append(torch.cat([early.detach().flatten(), late.detach()]))
    assert torch.equal(*ends)


def test_state_that_begins_at_a_number_begins_there_outside_the_block_too() -> None:
    p = nn.Parameter(torch.ones(10))
    optimizer = bcsc.BlockCyclic(torch.optim.Rprop([p], lr=0.25), 2, mask="all")
    p.grad = torch.ones(10)
    optimizer.step()
    assert optimizer.state[p]["step_size"].eq(0.25).all()
    assert optimizer.state[p]["prev"].eq(optimizer.epoch_blocks().labels[0] == 0).all()


def test_what_a_compiled_step_lends_is_in_the_users_own_tensor_and_goes_again(monkeypatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    parameters = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    for p in parameters[:2]:
        p.grad = torch.ones_like(p)
    own = [p.grad for p in parameters[:2]]
    with lent_gradients([(parameters[0], torch.full((3,), 2.0)), (parameters[1], torch.full((2,), 3.0))]):
        assert [p.grad.tolist() for p in parameters[:2]] == [[2.0] * 3, [3.0] * 2]
    for p, gradient in zip(parameters, own, strict=False):
        assert p.grad is gradient
        assert gradient.eq(1).all()
    assert parameters[2].grad is None


@pytest.mark.parametrize("base", [torch.optim.Adam, torch.optim.Adagrad, torch.optim.SGD])
def test_stepping_all_and_putting_back_is_stepping_the_tensors_of_the_block(base: type[torch.optim.Optimizer]) -> None:
    ends = []
    for one_way in (step_all_and_put_back, step_tensors_of_block):
        shapes = [(9, 3), (3,), (2, 1), (1,), ()]  # of the small ones most blocks have nothing
        parameters = [nn.Parameter(special_tensor(list(shape), torch.float64, "plain", 1)) for shape in shapes]
        options = {"momentum": 0.9} if base is torch.optim.SGD else {}
        optimizer = bcsc.BlockCyclic(base(parameters, lr=0.1, **options), 4, mask="all")
        for number in range(12):
            for i, p in enumerate(parameters):
                p.grad = special_tensor(list(p.shape), torch.float64, "plain", 10 * number + i)
            if number < 4:
                optimizer.step()  # which makes the state
            else:
                active = ActiveBlock(optimizer.epoch_blocks(), optimizer.block)
                with torch.no_grad():
                    assert has_begun(optimizer.base, active, optimizer.conduct())
                    one_way(optimizer.base, active, optimizer.conduct())
                optimizer.advance()
        ends.append([x for p in parameters for x in (p.detach(), *optimizer.state[p].values())])
    for one, other in zip(*ends, strict=True):
        assert_same(one, other)


def test_a_base_that_is_watched_is_stepped_by_its_own_step_in_a_compiled_step_too(monkeypatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    seen = []
    for is_watched in (True, False):
        p = nn.Parameter(torch.ones(3))
        p.grad = torch.ones(3)
        base = torch.optim.SGD([p], lr=0.5)
        if is_watched:
            base.register_step_post_hook(lambda *_: seen.append("stepped"))
        with torch.no_grad():
            step_base(base)
        assert p.tolist() == [0.5] * 3
    assert seen == ["stepped"]
