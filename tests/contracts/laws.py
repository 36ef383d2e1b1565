"""What a step in blocks must do around any base, compared with a bare step from the same point."""

import copy
from collections import deque
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

import bcsc


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
    elif isinstance(one, list | tuple | deque):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same_bits(first, second)
    elif hasattr(one, "__dict__") and not isinstance(one, type):
        assert_same_bits(vars(one), vars(other))
    else:
        assert one == other


def bits_of(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def check_one_block(bare: Optimizer, optimizer: bcsc.BlockCyclic, num_steps: int) -> None:
    """Steps with a single block are the bare optimizer's, to the bit."""
    bare_parameters, parameters = parameters_of(bare), parameters_of(optimizer)
    for step in range(num_steps):
        for each in (bare, optimizer):
            set_gradients(parameters_of(each), step)
            step_with_seed(each, step)
    assert_same_bits(parameters, bare_parameters)
    assert_same_bits(state_of(optimizer, parameters), state_of(bare, bare_parameters))


def check_blocks(
    optimizer: bcsc.BlockCyclic, num_steps: int, initial_state: Callable[[Optimizer, dict], dict] = lambda *_: {}
) -> None:
    """Every step does what the mask says; ``initial_state`` is what a base starts from, where that is known."""
    parameters, mask = parameters_of(optimizer), optimizer.mask
    for step in range(num_steps):
        set_gradients(parameters, step)
        gradients = [p.grad.clone() for p in parameters]
        bare = whole_copy(optimizer.base, {})
        bare_parameters = parameters_of(bare)
        before, state_before = copy.deepcopy((parameters, state_of(optimizer, parameters)))
        inside = [labels == optimizer.block for labels in optimizer.epoch_blocks().labels]
        for twin, gradient, here in zip(bare_parameters, gradients, inside, strict=True):
            twin.grad = torch.where(here, gradient, 0) if mask == "gradient" else gradient.clone()
            if mask == "all" and not here.any():
                twin.grad = None  # it sits the step out
        if bare.defaults.get("fused"):  # torch's own fused SGD fails where only some of a group have a momentum
            bare.param_groups = [{**group, "params": [p]} for group in bare.param_groups for p in group["params"]]
        for each in (optimizer, bare):
            step_with_seed(each, step)
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


def check_rescaled(optimizer: bcsc.BlockCyclic, num_steps: int) -> None:
    """Inside the block every step goes M times as far as the bare one, to a rounding; the state is the bare one's."""
    parameters = parameters_of(optimizer)
    for step in range(num_steps):
        set_gradients(parameters, step)
        bare = whole_copy(optimizer.base, {})
        for twin, p in zip(parameters_of(bare), parameters, strict=True):
            twin.grad = p.grad.clone()
        before = [p.detach().clone() for p in parameters]
        inside = [labels == optimizer.block for labels in optimizer.epoch_blocks().labels]
        for each in (optimizer, bare):
            step_with_seed(each, step)
        for p, start, twin, here in zip(parameters, before, parameters_of(bare), inside, strict=True):
            far = start.double() + optimizer.num_blocks * (twin.detach().double() - start.double())
            torch.testing.assert_close(p.detach().double(), torch.where(here, far, start), rtol=1e-6, atol=1e-6)
            assert_same_bits(p.detach()[~here], start[~here])
        assert_same_bits(state_of(optimizer, parameters), state_of(bare, parameters_of(bare)))


def check_continued(build: Callable[[], Optimizer], num_steps: int) -> None:
    """An optimizer that loads what another has saved goes on as that one does, to the bit."""
    first, second = build(), build()
    for step in range(num_steps):
        set_gradients(parameters_of(first), step)
        step_with_seed(first, step)
    with torch.no_grad():
        for p, saved in zip(parameters_of(second), parameters_of(first), strict=True):
            p.copy_(saved)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for step in range(num_steps, 2 * num_steps):
        for each in (first, second):
            set_gradients(parameters_of(each), step)
            step_with_seed(each, step)
    assert_same_bits(parameters_of(second), parameters_of(first))


def step_with_seed(optimizer: Optimizer, seed: int) -> None:
    """For bases that draw."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    optimizer.step()


def whole_copy(optimizer: Optimizer, memo: dict) -> Optimizer:
    """A copy with all attributes, of which ``copy.deepcopy`` keeps torch's own only."""
    twin = object.__new__(type(optimizer))
    memo[id(optimizer)] = twin
    for value in vars(optimizer).values():
        if isinstance(value, Optimizer):
            whole_copy(value, memo)
    vars(twin).update(copy.deepcopy(vars(optimizer), memo))
    numbers = {id(p): id(memo[id(p)]) for p in parameters_of(optimizer)}  # under which Magma keeps its state
    for name, value in vars(twin).items():
        if type(value) is dict:
            vars(twin)[name] = {numbers.get(key, key) if type(key) is int else key: x for key, x in value.items()}
    return twin


def parameters_of(optimizer: Optimizer) -> list[Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def check_held_state(here: Tensor, state: dict, before: dict, bare: dict) -> None:
    """Inside the block as the bare step left it; outside as it was before, or as a base starts it."""
    if not here.any():
        assert not before or copy.deepcopy({**before, **state}).keys() == before.keys()
        assert_same_bits({name: state.get(name, value) for name, value in before.items()}, before)
        return
    assert state.keys() == bare.keys()
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == here.shape and value.dim() > 0:
            assert_same_bits(value, torch.where(here, bare[name], before.get(name, value)))
        else:
            assert_same_bits(value, bare[name])
