"""SGD in one pass: the bits and the state of the general way."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import bcsc
from bcsc.optim.fast import one_pass
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
