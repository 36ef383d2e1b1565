"""Putting back in one pass, for any base: the bits of the general way."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import bcsc
from bcsc.choices import GRANULARITIES, MASKS
from bcsc.optim.fast import outside
from tests.unit.optim.test_masking import as_bits, special_tensor, tensors
from tests.without_numba import without_numba

pytest.importorskip("numba")

BASES = {
    "adamw": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "rprop": torch.optim.Rprop,
    "adagrad": torch.optim.Adagrad,
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.125, momentum=0.5, nesterov=True, foreach=True),
}


def trained(drawn, base: str, mask: str, granularity: str, seed: int) -> list[torch.Tensor]:
    """Parameters and all of their state after some steps."""
    parameters = [nn.Parameter(special_tensor(*each, seed + i)) for i, each in enumerate(drawn)]
    optimizer = bcsc.BlockCyclic(BASES[base](parameters), min(2, len(drawn)), mask=mask, granularity=granularity)
    for step in range(4):
        for i, (p, each) in enumerate(zip(parameters, drawn, strict=True)):
            p.grad = special_tensor(*each, seed + 100 * step + i)
        optimizer.step()
    states = [value for p in parameters for value in optimizer.state[p].values() if torch.is_tensor(value)]
    return [*parameters, *states]


real = tensors.map(lambda drawn: [(shape, dtype, layout) for shape, dtype, layout in drawn if not dtype.is_complex])


@given(
    real.filter(bool),
    st.sampled_from(sorted(BASES)),
    st.sampled_from(MASKS),
    st.sampled_from(GRANULARITIES),
    st.integers(0, 1000),
)
def test_any_base_gives_the_bits_of_the_general_way(drawn, base, mask, granularity, seed) -> None:
    fast = trained(drawn, base, mask, granularity, seed)
    with without_numba():
        general = trained(drawn, base, mask, granularity, seed)
    assert len(fast) == len(general)
    for one, other in zip(fast, general, strict=True):
        assert torch.equal(as_bits(one), as_bits(other))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("zeros_outside", [False, True])
def test_large_tensors_are_shared_by_threads(threads: int, zeros_outside: bool) -> None:
    drawn = [nn.Parameter(torch.randn(n)) for n in (300_007, 5, 70_000, 1)]
    blocks = bcsc.BlockCyclic(torch.optim.SGD(drawn, lr=0.1), 3).epoch_blocks()
    targets, sources = ([torch.randn(len(p)) for p in drawn] for _ in range(2))
    inside = [labels == 2 for labels in blocks.labels]
    outcome = [torch.zeros_like(x) for x in sources] if zeros_outside else sources
    kept = sources if zeros_outside else [x.clone() for x in targets]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        assert outside.merge(blocks, 2, range(4), (targets, sources), zeros_outside=zeros_outside)
    finally:
        torch.set_num_threads(before)
    for here, target, inner, outer in zip(inside, targets, kept, outcome, strict=True):
        assert torch.equal(target, torch.where(here, inner, outer))


def test_what_is_laid_out_otherwise_is_left_alone() -> None:
    p = nn.Parameter(torch.ones(4, 6))
    blocks = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1), 2).epoch_blocks()
    target, source = torch.ones(4, 6), torch.zeros(6, 4).T
    assert not outside.merge(blocks, 0, [0], ([target], [source]), zeros_outside=False)
    assert target.eq(1).all()
    assert not outside.merge(blocks, 0, [0], ([target.to(torch.complex128)],) * 2, zeros_outside=False)


def test_a_graph_that_has_kept_a_tensor_notices_the_pass() -> None:
    p = nn.Parameter(torch.ones(4))
    blocks = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1), 2).epoch_blocks()
    target = torch.ones(4)
    assert outside.merge(blocks, 0, [0], ([target], [torch.zeros(4)]), zeros_outside=False)
    assert target._version == 1


def test_checking_a_loop_leaves_the_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    for zeros_outside in (False, True):
        assert outside.is_exact.__wrapped__(4, torch.uint8, zeros_outside)
    assert torch.equal(torch.get_rng_state(), before)


def test_loops_for_other_types_are_kept_apart() -> None:
    """Two of one name would take each other's place on the disk."""
    types = [(4, torch.uint8, True), (4, torch.uint8, False), (8, torch.uint8, True), (4, torch.int16, True)]
    kernels = [outside.merge_call(size, label, 1, zeros)[0] for size, label, zeros in types]
    assert len(set(map(id, kernels))) == len(kernels)
    assert len({kernel._function.__qualname__ for kernel in kernels}) == len(kernels)
