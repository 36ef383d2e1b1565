"""SGD in one pass: the bits and the state of the general way."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import bcsc
from bcsc.kernels import passes
from bcsc.optim.fast import one_pass
from bcsc.optim.fast.sgd import SgdRecipe
from tests.unit.optim.fast.both_ways import assert_same_outcome, is_taken, problems, trained

pytest.importorskip("numba")

options = st.fixed_dictionaries(
    {
        "momentum": st.sampled_from([0, 0.9]),
        "weight_decay": st.sampled_from([0, 0.01]),
        "maximize": st.booleans(),
        "more": st.sampled_from([{}, {"dampening": 0.3}, {"nesterov": True}]),
        "way": st.sampled_from([{}, {"fused": True}, {"foreach": True}]),
    }
)


@given(problems, options)
def test_one_pass_gives_the_bits_of_the_general_way(problem, options) -> None:
    more, way = options.pop("more"), options.pop("way")
    build = partial(torch.optim.SGD, lr=0.1, **{**options, **way, **(more if options["momentum"] else {})})
    fast, general = (trained(build, problem, fast=fast) for fast in (True, False))
    assert fast.taken[-1]  # by then every momentum is there
    assert_same_outcome(fast, general)


def test_before_a_momentum_is_there_the_general_way_makes_it() -> None:
    p = nn.Parameter(torch.ones(10))
    base = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer = bcsc.BlockCyclic(base, 2)
    p.grad = torch.ones(10)
    assert not one_pass.step_in_one_pass(base, optimizer.epoch_blocks(), 0, "update")
    optimizer.step()
    assert one_pass.step_in_one_pass(base, optimizer.epoch_blocks(), 1, "update")


def test_a_rate_or_a_momentum_in_a_tensor_is_left_to_the_general_way() -> None:
    p = nn.Parameter(torch.ones(10))
    assert is_taken(torch.optim.SGD([p], lr=0.1, momentum=0.9), p)
    assert not is_taken(torch.optim.SGD([p], lr=torch.tensor(0.1), momentum=0.9), p)


@pytest.mark.parametrize("momentum", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}])
@pytest.mark.parametrize("decay", [0, 0.01])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_the_example_that_a_loop_is_checked_on_has_the_options_of_the_group(momentum, decay, maximize, fused) -> None:
    p = nn.Parameter(torch.ones(3))
    base = torch.optim.SGD([p], lr=0.1, weight_decay=decay, maximize=maximize, fused=fused, **momentum)
    recipe = SgdRecipe.of(base, base.param_groups[0], "update", torch.float32)
    (own,), (example,) = base.param_groups, recipe.example([p]).param_groups
    for name in ("nesterov", "maximize", "fused"):
        assert example[name] == own[name]
    for name in ("weight_decay", "momentum"):
        assert (example[name] != 0) == (own[name] != 0)


def test_loops_for_other_options_or_types_are_kept_apart() -> None:
    """Two of one name would take each other's place on the disk."""
    recipe = SgdRecipe("update", decays=False, has_momentum=False, nesterov=False, maximize=False, fused=False)
    others = [recipe._replace(mask="all"), *(recipe._replace(**{name: True}) for name in recipe._fields[1:5])]
    types = [("float32", "uint8"), ("float64", "uint8"), ("float32", "int16")]
    kernels = [each.kernel(passes.compiled_loops(), *types[0]) for each in others]
    kernels += [recipe.kernel(passes.compiled_loops(), *both) for both in types]
    assert len(set(map(id, kernels))) == len(kernels)
    assert len({kernel._function.__qualname__ for kernel in kernels}) == len(kernels)
