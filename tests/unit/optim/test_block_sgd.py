"""The fast way of SGD against the general one: the same bits, the same state, no large temporaries."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import bcsc
from bcsc.optim import block_cyclic, block_sgd

MASKS = ["update", "gradient", "all"]
SHAPES = [(7, 5), (13,), (), (6, 3, 5, 5), (2, 3, 2, 2)]
OPTIONS = [
    {"momentum": momentum, "weight_decay": decay, "maximize": maximize, **more}
    for momentum, decay, maximize in itertools.product((0, 0.9), (0, 0.1), (False, True))
    for more in ([{}, {"dampening": 0.5}, {"nesterov": True}] if momentum else [{}])
]
IMPLEMENTATIONS = [{}, {"fused": True}, {"foreach": True}]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_sgd, "PIECE", 64)


def parameters(dtype: torch.dtype, layout: torch.memory_format) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator, dtype=dtype) for shape in SHAPES]
    return [nn.Parameter(t.to(memory_format=layout) if t.dim() == 4 else t) for t in tensors]


def set_gradients(tensors: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in tensors:
        values = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        p.grad = torch.empty_like(p).copy_(values)


def trained(
    monkeypatch: pytest.MonkeyPatch,
    *,
    fast: Iterator[bool],
    mask: str,
    granularity: str = "element",
    dtype: torch.dtype = torch.float32,
    layout: torch.memory_format = torch.contiguous_format,
    **options: object,
) -> tuple[list[nn.Parameter], dict]:
    tensors = parameters(dtype, layout)
    groups = [{"params": tensors[:2], "lr": 0.1}, {"params": tensors[2:], "lr": 0.03}]
    optimizer = bcsc.BlockCyclic(torch.optim.SGD(groups, **options), 3, mask=mask, granularity=granularity)
    for step in range(10):
        allowed = next(fast)
        way = block_sgd.step_as_sgd if allowed else lambda *_: False
        taken = []
        monkeypatch.setattr(
            block_cyclic, "step_as_sgd", lambda *a, way=way, taken=taken: taken.append(way(*a)) or taken[0]
        )
        set_gradients(tensors, step)
        gradients = [p.grad.clone() for p in tensors]
        optimizer.step()
        assert all(torch.equal(p.grad, gradient) for p, gradient in zip(tensors, gradients, strict=True))
    assert taken == [allowed]  # after a cycle every momentum exists, and with it the fast way is open
    return tensors, optimizer.state_dict()


def assert_same(one: tuple[list[nn.Parameter], dict], other: tuple[list[nn.Parameter], dict]) -> None:
    torch.testing.assert_close(one[0], other[0], rtol=0, atol=0)
    torch.testing.assert_close(one[1]["state"], other[1]["state"], rtol=0, atol=0)
    assert {key: one[1][key] for key in ("param_groups", "block_cyclic")} == {
        key: other[1][key] for key in ("param_groups", "block_cyclic")
    }


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS, ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_fast_way_gives_the_bits_of_the_general_one(
    monkeypatch: pytest.MonkeyPatch, options: dict, implementation: dict, mask: str
) -> None:
    settings = {"mask": mask, **options, **implementation}
    general = trained(monkeypatch, fast=itertools.repeat(False), **settings)
    assert_same(trained(monkeypatch, fast=itertools.repeat(True), **settings), general)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("granularity", ["row", "tensor"])
@pytest.mark.parametrize("fused", [False, True])
def test_so_it_does_for_coarser_blocks(
    monkeypatch: pytest.MonkeyPatch, mask: str, granularity: str, fused: bool
) -> None:
    settings = {"mask": mask, "granularity": granularity, "momentum": 0.9, "fused": fused}
    general = trained(monkeypatch, fast=itertools.repeat(False), **settings)
    assert_same(trained(monkeypatch, fast=itertools.repeat(True), **settings), general)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fused", [False, True])
def test_so_it_does_for_channels_last_and_doubles(monkeypatch: pytest.MonkeyPatch, mask: str, fused: bool) -> None:
    for dtype, layout in [(torch.float64, torch.contiguous_format), (torch.float32, torch.channels_last)]:
        settings = {
            "mask": mask,
            "dtype": dtype,
            "layout": layout,
            "momentum": 0.9,
            "weight_decay": 0.1,
            "fused": fused,
        }
        general = trained(monkeypatch, fast=itertools.repeat(False), **settings)
        assert_same(trained(monkeypatch, fast=itertools.repeat(True), **settings), general)


@pytest.mark.parametrize("mask", MASKS)
def test_one_may_change_from_one_way_to_the_other_at_any_step(monkeypatch: pytest.MonkeyPatch, mask: str) -> None:
    settings = {"mask": mask, "momentum": 0.9, "weight_decay": 0.1}
    general = trained(monkeypatch, fast=itertools.repeat(False), **settings)
    assert_same(trained(monkeypatch, fast=itertools.cycle([True, True, False]), **settings), general)


@pytest.mark.parametrize("mask", MASKS)
def test_outside_the_block_not_even_nan_comes_in(mask: str) -> None:
    p = nn.Parameter(torch.ones(100))
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1), 2, mask=mask)
    p.grad = torch.full_like(p, float("nan"))
    outside = optimizer.cut().labels[0] != optimizer.block
    optimizer.step()
    assert (p[outside] == 1).all()
    assert p[~outside].isnan().all()


class LargestNewTensor(TorchDispatchMode):
    """Notes the largest tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = {
            x.untyped_storage().data_ptr()
            for x in torch.utils._pytree.tree_leaves((args, kwargs))
            if isinstance(x, Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(result):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in before:
                self.numel = max(self.numel, x.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fused", [False, True])
def test_no_temporary_is_larger_than_a_piece(mask: str, fused: bool) -> None:
    p = nn.Parameter(torch.ones(1000))
    p.grad = torch.ones(1000)
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1, momentum=0.9, fused=fused), 3, mask=mask)
    optimizer.step()
    with LargestNewTensor() as seen:
        optimizer.step()
    assert 0 < seen.numel <= 64


def test_hooks_and_schedulers_on_the_base_see_its_steps() -> None:
    p = nn.Parameter(torch.ones(10))
    base = torch.optim.SGD([p], lr=0.1)
    calls = []
    base.register_step_post_hook(lambda *_: calls.append("stepped"))
    optimizer = bcsc.BlockCyclic(base, 2)
    p.grad = torch.ones(10)
    optimizer.step()
    assert calls == ["stepped"]


@pytest.mark.parametrize("mask", ["update", "all"])
def test_outside_the_block_not_even_the_sign_of_a_zero_changes(mask: str) -> None:
    values = torch.tensor([0.0, -0.0, 1.0, -1.0] * 16)
    p = nn.Parameter(values.clone())
    optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1, momentum=0.9), 4, mask=mask)
    for gradient in (1.0, -1.0, float("inf"), float("nan")):
        before, outside = p.detach().clone(), optimizer.cut().labels[0] != optimizer.block
        p.grad = torch.full_like(p, gradient)
        optimizer.step()
        assert torch.equal(p.detach()[outside].view(torch.int32), before[outside].view(torch.int32))
