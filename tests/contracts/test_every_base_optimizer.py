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
from tests.contracts.laws import check_blocks, check_one_block, check_rescaled

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


def test_the_list_is_complete() -> None:
    tested = {case.values[0].optim_cls.__name__ for case in CASES}
    offered = {name for name in torch.optim.__all__ if isinstance(getattr(torch.optim, name), type)} - {"Optimizer"}
    assert tested == offered - REFUSED
    assert len(CASES) > 100


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("info", "options"), CASES)
def test_one_block_is_the_bare_optimizer_to_the_bit(info: OptimizerInfo, options: dict, mask: str) -> None:
    bare = build(info, starting_parameters(info), options)
    optimizer = bcsc.BlockCyclic(build(info, starting_parameters(info), options), num_blocks=1, mask=mask)
    check_one_block(bare, optimizer, num_steps=50)


@pytest.mark.parametrize(("info", "options"), CASES)
def test_a_rescaled_block_goes_three_times_as_far(info: OptimizerInfo, options: dict) -> None:
    base = build(info, starting_parameters(info), options)
    check_rescaled(bcsc.BlockCyclic(base, num_blocks=3, redraw=3, rescale=True), num_steps=5)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("info", "options"), CASES)
def test_three_blocks_do_what_the_mask_says(info: OptimizerInfo, options: dict, mask: str) -> None:
    base = build(info, starting_parameters(info), options)
    check_blocks(bcsc.BlockCyclic(base, num_blocks=3, mask=mask, steps_per_epoch=5), 12, initial_state)


def initial_state(optimizer: Optimizer, state: dict) -> dict:
    """Zeros, but for Rprop's step sizes and Adamax's smallest norm; Rprop negates a zero when it maximizes."""
    defaults = optimizer.defaults
    values = {
        "step_size": defaults["lr"],
        "exp_inf": defaults.get("eps"),
        "prev": -0.0 if defaults.get("maximize") else 0.0,
    }
    return {name: torch.full_like(x, values.get(name, 0.0)) for name, x in state.items() if isinstance(x, Tensor)}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_the_refused_are_refused_by_name_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedOptimizerError, match=f"{name} cannot be the base of BlockCyclic: it "):
        bcsc.BlockCyclic(getattr(torch.optim, name)([Parameter(torch.zeros(3))]), 2)
