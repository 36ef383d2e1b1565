"""Adam and AdamW in one pass: the bits and the state of the general way, and the same count of steps."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import Adam, AdamW

import bcsc
from bcsc.kernels import passes
from bcsc.optim.fast import one_pass
from bcsc.optim.fast.adam import AdamRecipe
from tests.unit.optim.fast.both_ways import assert_same_outcome, is_taken, problems, trained

pytest.importorskip("numba")

options = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([Adam, AdamW]),
        "lr": st.sampled_from([0.1, 1e-3]),
        "betas": st.sampled_from([(0.9, 0.999), (0.6, 0.9), (0.3, 0.99)]),
        "eps": st.sampled_from([1e-8, 1e-3, 0]),
        "weight_decay": st.sampled_from([0, 0.01]),
        "maximize": st.booleans(),
        "amsgrad": st.sampled_from([False, False, True]),
        "way": st.sampled_from([{"fused": True}, {"fused": True}, {}, {"foreach": True}]),
    }
)


@given(problems, options)
def test_one_pass_gives_the_bits_of_the_general_way(problem, options) -> None:
    way = options.pop("way")
    build = partial(options.pop("kind"), **options, **way)
    fast, general = (trained(build, problem, fast=fast, num_steps=7) for fast in (True, False))
    expected = way == {"fused": True} and not options["amsgrad"] and options["betas"][0] > 0.5
    assert fast.taken[-1] == expected  # by then every state is there
    assert_same_outcome(fast, general)


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_under_all_a_tensor_with_nothing_in_the_block_counts_no_step(kind: type[Adam]) -> None:
    parameters = [nn.Parameter(torch.ones(4)) for _ in range(2)]
    optimizer = bcsc.BlockCyclic(kind(parameters, fused=True), 2, mask="all", granularity="tensor")
    for _ in range(4):
        for p in parameters:
            p.grad = torch.ones(4)
        optimizer.step()
    blocks = optimizer.epoch_blocks()
    steps = [optimizer.state[p]["step"] for p in blocks.parameters]
    assert one_pass.step_in_one_pass(optimizer.base, blocks, 1, "all")
    inside = [bool(own.eq(1).all()) for own in blocks.labels]
    assert sorted(inside) == [False, True]
    assert [int(step) for step in steps] == [3 if here else 2 for here in inside]


def test_parameters_that_have_made_different_numbers_of_steps_go_at_their_own_rates() -> None:
    def after(fast: bool) -> list[torch.Tensor]:
        parameters = [nn.Parameter(torch.linspace(-1, 1, 9)) for _ in range(3)]
        optimizer = bcsc.BlockCyclic(AdamW(parameters, lr=0.1, fused=True), 2)
        for step in range(6):
            for p, first in zip(parameters, (0, 2, 3), strict=True):
                p.grad = torch.linspace(step, -1, 9) if step >= first else None
            if fast and step > 3:
                blocks = optimizer.epoch_blocks()
                assert one_pass.step_in_one_pass(optimizer.base, blocks, optimizer.block, "update")
                optimizer.advance()
            else:
                optimizer.step()
        assert [int(optimizer.state[p]["step"]) for p in parameters] == [6, 4, 3]
        return [p.detach() for p in parameters]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcsc.optim.block_cyclic.step_in_one_pass", lambda *_: False)
        assert all(map(torch.equal, after(fast=True), after(fast=False)))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lr", torch.tensor(0.1)),
        ("betas", (torch.tensor(0.9), torch.tensor(0.999))),
        ("betas", (0.5, 0.9)),
        ("amsgrad", True),
        ("fused", False),
    ],
)
def test_what_it_cannot_do_is_left_to_the_general_way(option: str, value: object) -> None:
    p = nn.Parameter(torch.ones(10))
    options = {"lr": 0.1, "fused": True}
    assert is_taken(AdamW([p], **options), p)
    assert not is_taken(AdamW([p], **{**options, option: value}), p)


def test_betas_that_can_be_changed_in_place_are_left_to_the_general_way() -> None:
    p = nn.Parameter(torch.ones(10))
    base = AdamW([p], lr=0.1, fused=True)
    base.param_groups[0]["betas"] = [0.9, 0.999]
    assert not is_taken(base, p)


def test_a_count_that_is_no_tensor_is_left_to_the_general_way() -> None:
    p = nn.Parameter(torch.ones(10))
    optimizer = bcsc.BlockCyclic(AdamW([p], lr=0.1, fused=True), 2)
    assert is_taken(optimizer.base, p)
    optimizer.state[p]["step"] = 3
    assert not one_pass.step_in_one_pass(optimizer.base, optimizer.epoch_blocks(), 0, "update")


def recipe_of(base: Adam, dtype: torch.dtype = torch.float32, **changed: object) -> AdamRecipe | None:
    group = {**base.param_groups[0], **changed}
    return AdamRecipe.of(base, {name: x for name, x in group.items() if x is not None}, "update", dtype)


@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("decay", [0, 0.01])
@pytest.mark.parametrize("maximize", [False, True])
def test_the_example_that_a_loop_is_checked_on_has_the_options_of_the_group(kind, decay, maximize) -> None:
    p = nn.Parameter(torch.ones(3))
    base = kind([p], weight_decay=decay, maximize=maximize, fused=True)
    example = recipe_of(base).example([p])
    assert (example.param_groups[0]["weight_decay"] != 0) == (decay != 0)
    assert example.param_groups[0]["maximize"] == maximize
    assert example.param_groups[0]["fused"]
    if decay:
        assert type(example) is kind


def test_decay_is_apart_from_the_gradient_where_the_group_says_so_or_by_the_kind_where_it_says_nothing() -> None:
    """Before torch 2.7 a group did not say."""
    p = nn.Parameter(torch.ones(3))
    for kind, of_kind in ((Adam, "coupled"), (AdamW, "decoupled")):
        base = kind([p], weight_decay=0.01, fused=True)
        assert recipe_of(base).decay == of_kind
        assert recipe_of(base, decoupled_weight_decay=None).decay == of_kind
        assert recipe_of(base, decoupled_weight_decay=False).decay == "coupled"
        assert recipe_of(base, decoupled_weight_decay=True).decay == "decoupled"


def test_whether_the_gradient_has_the_larger_share_is_told_in_the_precision_of_the_parameters() -> None:
    base = Adam([nn.Parameter(torch.ones(3))], betas=(0.5 + 1e-9, 0.9), fused=True)
    assert recipe_of(base, torch.float32) is None  # there it is half
    assert recipe_of(base, torch.float64) is not None


def test_loops_for_other_options_or_types_are_kept_apart() -> None:
    """Two of one name would take each other's place on the disk."""
    recipe = AdamRecipe("update", "none", maximize=False)
    others = [recipe._replace(**change) for change in ({"mask": "all"}, {"decay": "coupled"}, {"maximize": True})]
    types = [("float32", "uint8"), ("float64", "uint8"), ("float32", "int16")]
    kernels = [each.kernel(passes.compiled_loops(), *types[0]) for each in others]
    kernels += [recipe.kernel(passes.compiled_loops(), *both) for both in types]
    assert len(set(map(id, kernels))) == len(kernels)
    assert len({kernel._function.__qualname__ for kernel in kernels}) == len(kernels)
