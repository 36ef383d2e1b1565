"""The fast way against the general one: the same bits, the same state, and no crash where it cannot be taken."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import bcsc
from bcsc.choices import GRANULARITIES, MASKS
from bcsc.kernels import passes
from bcsc.optim import block_cyclic
from bcsc.optim.fast import sgd
from tests.unit.runs import tiny_run
from tests.without_numba import without_numba

pytest.importorskip("numba")

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-42, 3e38])


def numbers(shape: list[int], dtype: torch.dtype, layout: str, seed: int) -> Tensor:
    """Numbers of all kinds, in one of several layouts."""
    generator = torch.Generator().manual_seed(seed)
    pick = torch.randint(len(SPECIAL), shape, generator=generator)
    ordinary = torch.randn(shape, generator=generator, dtype=torch.float64)
    mixed = torch.where(torch.rand(shape, generator=generator) < 0.05, SPECIAL[pick].double(), ordinary).to(dtype)
    return mixed.to(memory_format=torch.channels_last) if layout == "channels_last" and len(shape) == 4 else mixed


def assert_same(one: Tensor, other: Tensor) -> None:
    """The same bits; arithmetic may give either NaN, so any equals any."""
    one, other = one.detach(), other.detach()
    assert torch.equal(one.isnan(), other.isnan())
    cleaned = [torch.where(x.isnan(), 0, x).contiguous().flatten().view(torch.uint8) for x in (one, other)]
    assert torch.equal(*cleaned)


def trained(drawn, options: dict, *, fast: bool, mask: str, granularity: str, seed: int):
    """Parameters, momenta, and after which steps the fast way was taken."""
    tensors = [nn.Parameter(numbers(*each, seed + i)) for i, each in enumerate(drawn)]
    groups = [{"params": tensors[:1], "lr": 0.1}, {"params": tensors[1:], "lr": 0.03}]
    num_blocks = min(3, len(tensors))
    base = torch.optim.SGD(groups if len(tensors) > 1 else tensors, lr=0.1, **options)
    optimizer = bcsc.BlockCyclic(base, num_blocks, mask=mask, granularity=granularity)
    taken: list[bool] = []
    way, block_cyclic.step_as_sgd = (
        block_cyclic.step_as_sgd,
        ((lambda *a: taken.append(sgd.step_as_sgd(*a)) or taken[-1]) if fast else lambda *_: False),
    )
    try:
        for step in range(5):
            for i, (p, each) in enumerate(zip(tensors, drawn, strict=True)):
                p.grad = numbers(*each, seed + 100 * (step + 1) + i)
            gradients = [p.grad.clone() for p in tensors]
            optimizer.step()
            for p, gradient in zip(tensors, gradients, strict=True):
                assert_same(p.grad, gradient)
    finally:
        block_cyclic.step_as_sgd = way
    return tensors, [optimizer.state[p].get("momentum_buffer") for p in tensors], taken


shapes = st.lists(st.integers(1, 7), max_size=4)
options = st.fixed_dictionaries(
    {
        "momentum": st.sampled_from([0, 0.9]),
        "weight_decay": st.sampled_from([0, 0.01]),
        "maximize": st.booleans(),
        "more": st.sampled_from([{}, {"dampening": 0.3}, {"nesterov": True}]),
        "way": st.sampled_from([{}, {"fused": True}, {"foreach": True}]),
    }
)


@given(
    st.lists(shapes, min_size=1, max_size=4),
    st.sampled_from([torch.float32, torch.float64]),
    st.sampled_from(["plain", "channels_last"]),
    options,
    st.sampled_from(MASKS),
    st.sampled_from(GRANULARITIES),
    st.integers(0, 1000),
)
def test_one_pass_gives_the_bits_of_the_general_way(drawn, dtype, layout, options, mask, granularity, seed) -> None:
    more, way = options.pop("more"), options.pop("way")
    options = {**options, **way, **(more if options["momentum"] else {})}
    drawn = [(shape, dtype, layout) for shape in drawn]
    setup = {"mask": mask, "granularity": granularity, "seed": seed}
    general = trained(drawn, options, fast=False, **setup)
    fast = trained(drawn, options, fast=True, **setup)
    assert fast[2][-1]  # by then every momentum is there
    for one, other in zip(fast[0], general[0], strict=True):
        assert_same(one, other)
    for one, other in zip(fast[1], general[1], strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert_same(one, other)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fused", [True, False])
def test_so_it_does_on_large_tensors_and_several_threads(mask: str, fused: bool) -> None:
    before = torch.get_num_threads()
    drawn = [([300_007], torch.float32, "plain"), ([11, 3, 5, 5], torch.float32, "channels_last")]
    setup = {"mask": mask, "granularity": "element", "seed": 0}
    options = {"momentum": 0.9, "weight_decay": 0.01, "fused": fused}
    try:
        torch.set_num_threads(2)
        fast, general = (trained(drawn, options, fast=way, **setup) for way in (True, False))
    finally:
        torch.set_num_threads(before)
    assert fast[2][-1]
    for one, other in zip([*fast[0], *fast[1]], [*general[0], *general[1]], strict=True):
        assert_same(one, other)


def steps_of(optimizer: bcsc.BlockCyclic, p: Tensor, num_steps: int = 3) -> Tensor:
    for step in range(num_steps):
        p.grad = torch.full_like(p, 1.0 + step)
        optimizer.step()
    return p.detach()


def test_what_it_cannot_do_is_left_to_the_general_way() -> None:
    def taken(base: torch.optim.Optimizer, p: Tensor) -> bool:
        optimizer = bcsc.BlockCyclic(base, 2)
        steps_of(optimizer, p)
        return sgd.step_as_sgd(base, optimizer.epoch_blocks(), 0, "update")

    def built(p: Tensor, **more: object) -> torch.optim.SGD:
        return torch.optim.SGD([p], **{"lr": 0.1, "momentum": 0.9, **more})

    p = nn.Parameter(torch.ones(10))
    assert taken(built(p), p)
    watched = built(p)
    watched.register_step_pre_hook(lambda *_: None)
    assert not taken(watched, p)
    assert not taken(built(p, lr=torch.tensor(0.1)), p)
    assert not taken(torch.optim.Adam([p]), p)
    half = nn.Parameter(torch.ones(10, dtype=torch.bfloat16))
    assert not taken(built(half), half)
    gaps = nn.Parameter(torch.ones(10, 2)[:, 0])
    assert not taken(built(gaps), gaps)


def test_before_a_momentum_is_there_the_general_way_makes_it() -> None:
    p = nn.Parameter(torch.ones(10))
    base = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer = bcsc.BlockCyclic(base, 2)
    p.grad = torch.ones(10)
    assert not sgd.step_as_sgd(base, optimizer.epoch_blocks(), 0, "update")
    optimizer.step()
    assert sgd.step_as_sgd(base, optimizer.epoch_blocks(), 1, "update")


def test_a_graph_that_has_kept_a_parameter_notices_that_it_has_moved() -> None:
    p, x = nn.Parameter(torch.ones(3)), torch.ones(3, requires_grad=True)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1), 2)
    product = (p * x).sum()
    p.grad = torch.ones(3)
    assert sgd.step_as_sgd(optimizer.base, optimizer.epoch_blocks(), 0, "update")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("mask", MASKS)
def test_a_run_measures_the_same_with_and_without_numba(mask: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bool] = []
    real = sgd.step_as_sgd
    monkeypatch.setattr(block_cyclic, "step_as_sgd", lambda *a: calls.append(real(*a)) or calls[-1])
    fast = tiny_run.train(tmp_path / "with", mask=mask, epochs=2).history
    with without_numba():
        general = tiny_run.train(tmp_path / "without", mask=mask, epochs=2).history
    assert any(calls[: len(calls) // 2])
    assert not any(calls[len(calls) // 2 :])
    for one, other in zip(fast, general, strict=True):
        assert (one.train_loss, one.train_loss_std, one.test_loss, one.test_accuracy) == (
            other.train_loss,
            other.train_loss_std,
            other.test_loss,
            other.test_accuracy,
        )


MISTAKES = ["fails", "rounds otherwise", "moves everything"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_kernel_that_fails_or_rounds_or_masks_otherwise_is_not_used(mistake, monkeypatch) -> None:
    real = sgd.compiled_sgd

    def compiled(dtype, label_dtype, flags):
        def kernel(addresses, rows, begin, end, width, sizes, block, zero, rate, *numbers):
            if mistake == "fails":
                raise SystemError("LLVM is out of order")
            wrong = flags._replace(mask="gradient") if mistake == "moves everything" else flags
            rate = rate * 1.0000001 if mistake == "rounds otherwise" else rate
            real(dtype, label_dtype, wrong)(
                addresses, rows, begin, end, width, sizes, block, zero, type(zero)(rate), *numbers
            )

        return kernel

    monkeypatch.setattr(sgd, "compiled_sgd", compiled)
    monkeypatch.setattr(passes, "TOLD", [])
    sgd.rounding_width.cache_clear()
    try:
        p = nn.Parameter(torch.ones(10))
        optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1, momentum=0.9), 2)
        if mistake == "fails":
            with pytest.warns(RuntimeWarning, match="Numba is installed but does not work here") as told:
                moved = steps_of(optimizer, p)
            assert len(told) == 1
        else:
            moved = steps_of(optimizer, p)
        assert (moved != 1).all()
        assert not sgd.step_as_sgd(optimizer.base, optimizer.epoch_blocks(), 0, "update")
    finally:
        sgd.rounding_width.cache_clear()
