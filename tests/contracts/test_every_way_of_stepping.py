"""What holds for every base and mask, whichever way the step is made: frozen parameters, layouts, schedulers."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

import bcsc
from bcsc.choices import MASKS
from bcsc.seeding import stream

BASES: dict[str, Callable[[list[Parameter]], Optimizer]] = {
    "plain SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "fused SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01, fused=True),
    "foreach SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.1),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.1, momentum=0.9),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}
SHAPE = (4, 3, 5, 2)
LARGE = (33, 32, 17, 17)  # more than fits into a cache, for ways that step a tensor piece by piece


def tensor(purpose: str, step: int, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.randn(shape, generator=stream(0, purpose, step))


def value_and_state(optimizer: Optimizer, parameter: Parameter) -> list[Tensor]:
    state = optimizer.state.get(parameter, {}).values()
    return [torch.as_tensor(x).detach().clone() for x in (parameter, *state) if x is not None]


def assert_equal(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other)
    assert all(map(torch.equal, one, other))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
def test_a_frozen_parameter_with_a_gradient_stays_and_is_left_its_gradient(base: str, mask: str) -> None:
    trained, frozen = Parameter(tensor("p", 0)), Parameter(tensor("p", 1, (6,)))
    alone = Parameter(tensor("p", 0))
    optimizer = bcsc.BlockCyclic(BASES[base]([trained, frozen]), 3, mask=mask)
    without = bcsc.BlockCyclic(BASES[base]([alone]), 3, mask=mask)
    frozen.requires_grad_(False)
    before, gradient = value_and_state(optimizer, frozen), torch.ones(6)
    for step in range(7):
        trained.grad, alone.grad, frozen.grad = tensor("g", step), tensor("g", step), gradient
        optimizer.step()
        without.step()
    assert_equal(value_and_state(optimizer, frozen), before)
    assert frozen.grad is gradient
    assert gradient.eq(1).all()
    assert torch.equal(trained, alone)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
def test_a_parameter_frozen_on_the_way_keeps_its_value_and_its_state(base: str, mask: str) -> None:
    parameters = [Parameter(tensor("p", 0)), Parameter(tensor("p", 1, (6,)))]
    optimizer = bcsc.BlockCyclic(BASES[base](parameters), 2, mask=mask)
    for step in range(4):
        parameters[0].grad, parameters[1].grad = tensor("g", step), tensor("g", step, (6,))
        optimizer.step()
    frozen = parameters[1].requires_grad_(False)
    held = value_and_state(optimizer, frozen)
    for step in range(4, 8):
        parameters[0].grad, frozen.grad = tensor("g", step), tensor("g", step, (6,))
        optimizer.step()
    assert_equal(value_and_state(optimizer, frozen), held)


# The same numbers in another order in memory.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 3).contiguous().transpose(0, 3),
    "with gaps": lambda x: torch.stack([x, x], dim=-1)[..., 0],
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("shape", "num_steps", "num_layouts"), [(SHAPE, 6, 4), (LARGE, 2, 2)])
def test_layouts_of_parameter_gradient_and_momentum_change_nothing(
    base: str, mask: str, shape: tuple[int, ...], num_steps: int, num_layouts: int
) -> None:
    """The gradient's layout changes at every step, so that the state's may differ from the parameter's."""

    def trained(of_parameter: str, of_gradients: tuple[str, ...]) -> Tensor:
        parameter = Parameter(LAYOUTS[of_parameter](tensor("p", 0, shape)))
        optimizer = bcsc.BlockCyclic(BASES[base]([parameter]), 2, mask=mask)
        for step in range(num_steps):
            parameter.grad = LAYOUTS[of_gradients[step % len(of_gradients)]](tensor("g", step, shape))
            optimizer.step()
        return parameter.detach().contiguous()

    expected = trained("contiguous", ("contiguous",))
    for of_parameter, of_gradient in itertools.product(list(LAYOUTS)[:num_layouts], repeat=2):
        if base == "fused SGD" and (of_parameter != of_gradient or of_parameter == "with gaps"):
            continue  # torch's own fused step reads memory in order, whatever the layouts
        for layouts in ((of_gradient,), (of_gradient, of_parameter)):
            torch.testing.assert_close(trained(of_parameter, layouts), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("on_base", [True, False])
def test_a_scheduler_gives_what_rates_set_by_hand_give(base: str, mask: str, on_base: bool) -> None:
    """A scheduler that misses the optimizer's steps warns, and warnings are errors here."""
    scheduled, by_hand = Parameter(tensor("p", 0)), Parameter(tensor("p", 0))
    optimizer = bcsc.BlockCyclic(BASES[base]([scheduled]), 3, mask=mask)
    other = bcsc.BlockCyclic(BASES[base]([by_hand]), 3, mask=mask)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer.base if on_base else optimizer, gamma=0.5)
    for step in range(6):
        other.param_groups[0]["lr"] = 0.1 * 0.5**step
        scheduled.grad, by_hand.grad = tensor("g", step), tensor("g", step)
        optimizer.step()
        other.step()
        scheduler.step()
    assert torch.equal(scheduled, by_hand)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
def test_a_step_of_the_base_that_someone_replaced_is_the_one_that_is_made(base: str, mask: str) -> None:
    parameter, calls = Parameter(tensor("p", 0)), []
    inner = BASES[base]([parameter])
    own_step = inner.step
    inner.step = lambda *arguments: (calls.append(1), own_step(*arguments))[1]
    optimizer = bcsc.BlockCyclic(inner, 2, mask=mask)
    for step in range(6):
        parameter.grad = tensor("g", step)
        optimizer.step()
    assert len(calls) >= 6
