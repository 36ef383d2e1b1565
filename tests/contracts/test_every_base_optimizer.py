"""What holds around every optimizer of ``torch.optim``, with the argument sets of PyTorch's own tests."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db

import bcsc
from bcsc.errors import UnsupportedOptimizerError

MASKS = ["update", "gradient", "all"]
REFUSED = {"LBFGS", "SparseAdam"}


def build(info: OptimizerInfo, parameters: list[Parameter], options: dict) -> Optimizer:
    return info.optim_cls(parameters, **copy.deepcopy(options))


def starting_parameters(info: OptimizerInfo) -> list[Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(4, 3), (2, 5)] if info.optim_cls.__name__ == "Muon" else [(4, 3), (5,), ()]  # Muon takes matrices only
    return [Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def argument_sets(info: OptimizerInfo) -> Iterator[dict]:
    """Every argument set in every implementation that takes it."""
    for given in info.optim_inputs_func(device="cpu"):
        for implementation in [{}, *[{name: True} for name in ("foreach", "fused") if name in info.supported_impls]]:
            options = {**given.kwargs, **implementation}
            try:
                build(info, starting_parameters(info), options)
            except (ValueError, RuntimeError):  # for instance foreach with a tensor as learning rate
                continue
            if not ("foreach" in implementation and any(isinstance(value, Tensor) for value in options.values())):
                yield options


CASES = [
    pytest.param(info, options, id=f"{info.optim_cls.__name__}-{i}")
    for info in optim_db
    if info.optim_cls.__name__ not in REFUSED
    for i, options in enumerate(argument_sets(info))
]


def set_gradients(parameters: list[Parameter], step: int) -> None:
    """Gradients that depend on the step and on where the parameters are."""
    generator = torch.Generator().manual_seed(100 + step)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=generator) + 0.5 * p.detach()


def state_of(optimizer: Optimizer, parameters: list[Parameter]) -> list[dict]:
    return [dict(optimizer.state.get(p, {})) for p in parameters]


def assert_same_bits(one: object, other: object) -> None:
    """The same structure with the same bits in every tensor."""
    if isinstance(one, Tensor):
        assert isinstance(other, Tensor)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert torch.equal(bits_of(one), bits_of(other))
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same_bits(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same_bits(first, second)
    else:
        assert one == other


def bits_of(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def test_the_list_is_complete() -> None:
    tested = {case.values[0].optim_cls.__name__ for case in CASES}
    offered = {name for name in torch.optim.__all__ if isinstance(getattr(torch.optim, name), type)} - {"Optimizer"}
    assert tested == offered - REFUSED
    assert len(CASES) > 100


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("info", "options"), CASES)
def test_one_block_is_the_bare_optimizer_to_the_bit(info: OptimizerInfo, options: dict, mask: str) -> None:
    bare_parameters, parameters = starting_parameters(info), starting_parameters(info)
    bare = build(info, bare_parameters, options)
    optimizer = bcsc.BlockCyclic(build(info, parameters, options), num_blocks=1, mask=mask)
    for step in range(50):
        set_gradients(bare_parameters, step)
        set_gradients(parameters, step)
        bare.step()
        optimizer.step()
    assert_same_bits(parameters, bare_parameters)
    assert_same_bits(state_of(optimizer, parameters), state_of(bare, bare_parameters))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("info", "options"), CASES)
def test_three_blocks_do_what_the_mask_says(info: OptimizerInfo, options: dict, mask: str) -> None:
    """Each step is compared with a bare step from the same point."""
    parameters = starting_parameters(info)
    optimizer = bcsc.BlockCyclic(build(info, parameters, options), num_blocks=3, mask=mask, steps_per_epoch=5)
    for step in range(12):
        set_gradients(parameters, step)
        gradients = [p.grad.clone() for p in parameters]
        bare, bare_parameters = copy.deepcopy((optimizer.base, parameters))
        before, state_before = copy.deepcopy((parameters, state_of(optimizer, parameters)))
        inside = [labels == optimizer.block for labels in optimizer.epoch_blocks().labels]
        for twin, gradient, here in zip(bare_parameters, gradients, inside, strict=True):
            twin.grad = torch.where(here, gradient, 0) if mask == "gradient" else gradient.clone()
        optimizer.step()
        bare.step()
        expected = [
            bare_p if mask == "gradient" else torch.where(here, bare_p, p)
            for bare_p, p, here in zip(bare_parameters, before, inside, strict=True)
        ]
        assert_same_bits([p.detach() for p in parameters], [p.detach() for p in expected])
        assert_same_bits([p.grad for p in parameters], gradients)
        if mask != "all":
            assert_same_bits(state_of(optimizer, parameters), state_of(bare, bare_parameters))
        else:
            for i, here in enumerate(inside):
                state, bare_state = state_of(optimizer, parameters)[i], state_of(bare, bare_parameters)[i]
                check_held_state(here, state, state_before[i] or initial_state(optimizer, state), bare_state)


def initial_state(optimizer: Optimizer, state: dict) -> dict:
    """Zeros, but for Rprop's step sizes and Adamax's smallest norm; Rprop negates a zero when it maximizes."""
    defaults = optimizer.defaults
    values = {
        "step_size": defaults["lr"],
        "exp_inf": defaults.get("eps"),
        "prev": -0.0 if defaults.get("maximize") else 0.0,
    }
    return {name: torch.full_like(x, values.get(name, 0.0)) for name, x in state.items() if isinstance(x, Tensor)}


def check_held_state(here: Tensor, state: dict, before: dict, bare: dict) -> None:
    """Inside the block as the bare step left it; outside as it was before, or as a base starts it."""
    if not here.any():
        assert_same_bits({**before, **state}, before)
        return
    assert state.keys() == bare.keys()
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == here.shape and value.dim() > 0:
            assert_same_bits(value, torch.where(here, bare[name], before[name]))
        else:
            assert_same_bits(value, bare[name])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_refused_are_refused_by_name_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedOptimizerError, match=f"{name} cannot be the base of BlockCyclic: it "):
        bcsc.BlockCyclic(getattr(torch.optim, name)([Parameter(torch.zeros(3))]), 2)
