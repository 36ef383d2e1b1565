"""A state that a base could not step with is refused before anything is changed; what a base saved is loaded."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adafactor, Adam, Optimizer, lr_scheduler

import bcsc
from bcsc.errors import BcscError, StateMismatchError
from bcsc.optim.state_check import fits, fits_option, is_count, is_safe, num_stateful, saved_position
from tests.hostile import VALUES, changed, places

BASES: dict[str, Callable[[Any], Optimizer]] = {
    "fused SGD": lambda p: SGD(p, lr=0.1, momentum=0.9, fused=True),
    "SGD": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: Adam(p, lr=0.1, amsgrad=True),
    "fused Adam": lambda p: Adam(p, lr=0.1, fused=True),
    "Adadelta": lambda p: Adadelta(p, lr=0.1),
    "Adafactor": lambda p: Adafactor(p, lr=0.1),
}


def stepped(base: Callable[[Any], Optimizer], steps: int = 3, **settings: Any) -> bcsc.BlockCyclic:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = bcsc.BlockCyclic(base(model.parameters()), 2, **settings)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().sum().backward()
        optimizer.step()
    return optimizer


def everything_in(optimizer: bcsc.BlockCyclic) -> str:
    torch.set_printoptions(precision=10)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return f"{optimizer.state_dict()} {parameters} {optimizer.epoch} {optimizer.inner_step}"


def assert_refused(optimizer: bcsc.BlockCyclic, state: Any, match: str) -> None:
    before = everything_in(optimizer)
    with pytest.raises(BcscError, match=match):
        optimizer.load_state_dict(state)
    assert everything_in(optimizer) == before


WRONG: dict[str, Callable[[Tensor], Any]] = {
    "larger": lambda x: torch.zeros(*x.shape, 1000),
    "smaller": lambda x: torch.zeros(0),
    "of one number": lambda x: torch.zeros(()),
    "of another type": lambda x: x.to(torch.int8),
    "of more digits": lambda x: x.double(),
    "complex": lambda x: x.to(torch.complex64),
    "of one number many times": lambda x: torch.zeros(()).expand(x.shape),
    "with gaps": lambda x: torch.zeros(*x.shape, 2)[..., 0],
    "sparse": lambda x: x.to_sparse(),
    "nowhere": lambda x: x.to("meta"),
    "a text": lambda x: "momentum",
    "nothing": lambda x: None,
    "a list": lambda x: x.tolist(),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_tensor_that_the_base_would_not_make_is_refused(base: str, wrong: str) -> None:
    optimizer = stepped(BASES[base])
    for name in optimizer.state_dict()["state"][0]:
        state = copy.deepcopy(optimizer.state_dict())
        entry = state["state"][0][name]
        if name != "step":
            state["state"][0][name] = WRONG[wrong](entry)
            assert_refused(optimizer, state, f"{name} that is|{name}' of parameter 0|lacks {name}")


@pytest.mark.parametrize("base", BASES)
def test_a_state_with_an_entry_too_few_is_refused(base: str) -> None:
    optimizer = stepped(BASES[base])
    for name in optimizer.state_dict()["state"][0]:
        state = copy.deepcopy(optimizer.state_dict())
        del state["state"][0][name]
        if state["state"][0]:
            assert_refused(optimizer, state, f"parameter 0 lacks {name}")


@pytest.mark.parametrize("count", [-1, 0.5, math.nan, math.inf, torch.tensor(-1.0), torch.ones(2), "1", None, True])
@pytest.mark.parametrize("base", ["Adam", "fused Adam", "Adadelta"])
def test_a_step_count_that_is_none_is_refused(base: str, count: Any) -> None:
    optimizer = stepped(BASES[base])
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][1]["step"] = count
    assert_refused(optimizer, state, "parameter 1 has a step that is")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"lr": "0.1"}, "lr of group 0 was '0.1', is 0.1"),
        ({"lr": math.nan}, "lr of group 0 was nan"),
        ({"lr": True}, "lr of group 0 was True"),
        ({"lr": 10**5000}, "lr of group 0 was a int too large to show"),
        ({"lr": torch.ones(3)}, "lr of group 0 was tensor"),
        ({"betas": (0.9,)}, "betas of group 0 was"),
        ({"betas": (0.9, 7.0)}, "Adam cannot step with the options of parameter 0"),
        ({"amsgrad": False}, "amsgrad of group 0 was False, is True"),
        ({"capturable": True}, "Adam cannot step with the options of parameter 0"),  # on the CPU
        ({"foreach": [1]}, "foreach of group 0 was"),
        ({"params": [0, 1, 2]}, "group 0 should be of the parameters"),
        ({"params": [3, 2, 1, 0]}, "group 0 should be of the parameters"),
        ({"params": torch.arange(4)}, "group 0 should be of the parameters"),
        ({"params": [torch.ones(2)] * 4}, "group 0 should be of the parameters"),
    ],
)
def test_options_of_another_kind_are_refused(change: dict[str, Any], match: str) -> None:
    optimizer = stepped(BASES["Adam"])
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0].update(change)
    assert_refused(optimizer, state, match)


def test_options_are_tried_out_where_there_is_no_state_yet_too() -> None:
    optimizer = stepped(BASES["Adam"], steps=0)
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["betas"] = (0.9, 7.0)
    assert_refused(optimizer, state, "Adam cannot step with the options of parameter 0")


@pytest.mark.parametrize("option", ["lr", "betas", "eps", "weight_decay", "amsgrad"])
def test_a_group_without_an_option_that_the_step_needs_is_refused(option: str) -> None:
    optimizer = stepped(lambda p: Adam(p, lr=0.1))
    state = copy.deepcopy(optimizer.state_dict())
    del state["param_groups"][0][option]
    if option == "amsgrad":  # torch itself fills it in, as an earlier one did not have it
        optimizer.load_state_dict(state)
    else:
        assert_refused(optimizer, state, "Adam cannot step with the options of parameter 0")


@pytest.mark.parametrize("groups", [None, [], [1], {}, [{}, {}], [[]], "groups"])
def test_groups_that_are_none_are_refused(groups: Any) -> None:
    optimizer = stepped(BASES["SGD"])
    assert_refused(optimizer, {**optimizer.state_dict(), "param_groups": groups}, "group")


@pytest.mark.parametrize("state", [None, [], {4: {}}, {-1: {}}, {True: {}}, {0: []}, {0: None}, {0: torch.ones(2)}])
def test_a_table_of_other_parameters_is_refused(state: Any) -> None:
    optimizer = stepped(BASES["SGD"])
    assert_refused(optimizer, {**optimizer.state_dict(), "state": state}, "not a table|it has state of a parameter")


@pytest.mark.parametrize(
    "change",
    [
        {"shapes": [torch.ones(2)]},
        {"shapes": None},
        {"shapes": [[4.0, 3]]},
        {"epoch": -1},
        {"step": 10**5000},
        {"step": None},
        {"num_blocks": torch.ones(2)},
        {"seed": True},
    ],
)
def test_a_position_or_set_up_that_is_none_is_refused(change: dict[str, Any]) -> None:
    optimizer = stepped(BASES["SGD"])
    state = copy.deepcopy(optimizer.state_dict())
    state["block_cyclic"].update(change)
    assert_refused(optimizer, state, "was built otherwise|another network|must be a whole number")


def test_a_position_beyond_its_epoch_is_refused() -> None:
    optimizer = stepped(BASES["SGD"], steps_per_epoch=4)
    state = copy.deepcopy(optimizer.state_dict())
    state["block_cyclic"]["step"] = 4
    assert_refused(optimizer, state, "step 4 is beyond the 4 of an epoch")


@pytest.mark.parametrize("base", BASES)
def test_what_was_saved_is_loaded_and_not_changed_by_it(base: str) -> None:
    optimizer = stepped(BASES[base])
    state = copy.deepcopy(optimizer.state_dict())
    torch.manual_seed(7)
    random_state = torch.get_rng_state()
    other = stepped(BASES[base], steps=0)
    torch.set_rng_state(random_state)
    other.load_state_dict(state)
    assert str(other.state_dict()) == str(optimizer.state_dict()) == str(state)
    assert torch.equal(torch.get_rng_state(), random_state)


class Nested(Optimizer):
    """Keeps its momentum in a list and in a table, as AggMo, SOAP and Kron do."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["list"], state["table"] = [torch.zeros_like(p)], {"of one": torch.zeros_like(p)}
            for momentum in (state["list"][0], state["table"]["of one"]):
                momentum.mul_(0.9).add_(p.grad)
                p.sub_(0.05 * momentum)


def test_tensors_in_lists_and_tables_are_loaded_and_not_changed_by_it() -> None:
    saved = stepped(Nested).state_dict()
    before = copy.deepcopy(saved)
    optimizer = stepped(Nested, steps=1)
    optimizer.load_state_dict(saved)
    assert f"{saved}" == f"{before}" == f"{optimizer.state_dict()}"


def test_what_a_scheduler_made_of_the_options_is_loaded() -> None:
    optimizer = stepped(BASES["Adam"], steps=0)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=10)
    optimizer.step()
    scheduler.step()
    state = copy.deepcopy(optimizer.state_dict())
    other = stepped(BASES["Adam"])
    other.load_state_dict(state)
    assert other.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] != 0.1


def test_the_step_count_of_an_earlier_torch_is_loaded() -> None:
    optimizer = stepped(BASES["Adam"])
    state = copy.deepcopy(optimizer.state_dict())
    for entry in state["state"].values():
        entry["step"] = 3
    optimizer.load_state_dict(state)
    assert all(entry["step"].item() == 3.0 for entry in optimizer.state.values())


def test_parameters_that_never_had_a_gradient_have_no_state() -> None:
    optimizer = stepped(BASES["Adam"])
    state = copy.deepcopy(optimizer.state_dict())
    del state["state"][3]
    state["block_cyclic"]["stateful"] = 3
    optimizer.load_state_dict(state)
    assert len(optimizer.state) == 3


def test_a_state_of_fewer_parameters_than_were_saved_is_refused() -> None:
    """As a plain load by ``torch.distributed.checkpoint`` makes it, which fills only what is there."""
    state = copy.deepcopy(stepped(BASES["Adam"]).state_dict())
    state["state"].clear()
    with pytest.raises(StateMismatchError, match="the state of 0 parameters, of 4 it was saved.*DistributedState"):
        stepped(BASES["Adam"]).load_state_dict(state)


def test_a_state_from_before_they_were_counted_is_loaded() -> None:
    optimizer = stepped(BASES["Adam"])
    state = copy.deepcopy(optimizer.state_dict())
    del state["block_cyclic"]["stateful"]
    optimizer.load_state_dict(state)


class Delegating(SGD):
    """Has another optimizer make its steps."""

    def __init__(self, parameters: Any) -> None:
        parameters = list(parameters)
        super().__init__(parameters, lr=0.1)
        self.inner = SGD(parameters, lr=0.1, momentum=0.9)

    def step(self, closure: Any = None) -> None:
        self.inner.step()


def test_a_base_that_steps_by_another_moves_nothing_when_a_state_is_loaded() -> None:
    parameter = nn.Parameter(torch.ones(4))
    optimizer = bcsc.BlockCyclic(Delegating([parameter]), 2)
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][0] = {"average": torch.ones(4)}
    parameter.grad = torch.ones(4)
    optimizer.load_state_dict(state)
    assert parameter.tolist() == [1.0] * 4


@pytest.mark.parametrize("count", [0, 0.0, torch.tensor(0), torch.tensor([0.0]), 1, 7.0, torch.tensor(7.0)])
def test_whole_numbers_from_zero_on_are_counts_and_others_are_not(count: Any) -> None:
    assert is_count(count)
    assert not is_count(-1 - count)
    assert not is_count(count + 0.5)


@pytest.mark.parametrize("own", [{}, torch.float32, Adam, b"bytes"])
def test_an_option_of_a_kind_that_nobody_knows_is_replaced_by_one_of_its_kind_only(own: Any) -> None:
    assert fits_option("option", copy.deepcopy(own), own)
    assert not any(fits_option("option", other, own) for other in (None, 1, "text", [], set()))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1), (2, 3, 4, 5)])
def test_what_torch_lays_out_is_safe(shape: tuple[int, ...]) -> None:
    tensor = torch.zeros(shape)
    assert is_safe({"a": [tensor, tensor.T if tensor.dim() == 2 else tensor]})
    if len(shape) == 4:
        assert is_safe(tensor.to(memory_format=torch.channels_last))
        assert not is_safe(tensor[:, ::2])
        assert not is_safe([{"a": tensor[:, :1].expand(shape)}])


@pytest.mark.filterwarnings("ignore")  # torch is about to give up tensors of another scale
def test_what_has_no_numbers_of_its_own_in_memory_is_not_safe() -> None:
    tensor = torch.ones(3)
    assert is_safe(tensor)
    for other in (tensor.to_sparse(), tensor.to("meta"), torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)):
        assert not is_safe(other)


def overlapping(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors with these shapes, of which the last number of one is the first of the other."""
    memory = torch.zeros(x.numel() + y.numel() - 1, dtype=x.dtype)
    return memory[: x.numel()].view(x.shape), memory[x.numel() - 1 :].view(y.shape)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("base", ["fused SGD", "SGD", "Adam", "Adadelta"])
def test_tensors_that_share_memory_are_refused(base: str, turned: bool) -> None:
    optimizer = stepped(BASES[base])
    state = copy.deepcopy(optimizer.state_dict())
    name = next(name for name in state["state"][0] if name != "step")
    places = [state["state"][number] for number in ((3, 0) if turned else (0, 3))]
    for place, tensor in zip(places, overlapping(*(place[name] for place in places)), strict=True):
        place[name] = tensor
    assert_refused(optimizer, state, "share memory")


def test_two_entries_of_one_parameter_and_an_entry_and_a_rate_share_no_memory_either() -> None:
    optimizer = stepped(BASES["Adam"])
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][1]["exp_avg"] = state["state"][1]["exp_avg_sq"]
    assert_refused(optimizer, state, "share memory")
    optimizer = stepped(lambda p: Adam(p, lr=torch.tensor(0.1)))
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][1]["step"] = state["param_groups"][0]["lr"].fill_(3.0)
    assert_refused(optimizer, state, "share memory")


def test_tensors_side_by_side_in_memory_and_a_rate_of_several_groups_are_loaded() -> None:
    rate = torch.tensor(0.1)
    optimizer = stepped(lambda p: SGD([{"params": [x]} for x in p], lr=rate, momentum=0.9))
    state = copy.deepcopy(optimizer.state_dict())
    saved = [entry["momentum_buffer"] for entry in state["state"].values()]
    memory = torch.cat([tensor.flatten() for tensor in saved])
    for entry, part in zip(state["state"].values(), memory.split([x.numel() for x in saved]), strict=True):
        entry["momentum_buffer"] = part.view(entry["momentum_buffer"].shape)
    assert state["param_groups"][0]["lr"] is state["param_groups"][1]["lr"]
    optimizer.load_state_dict(state)
    for entry, tensor in zip(optimizer.state.values(), saved, strict=True):
        assert torch.equal(entry["momentum_buffer"], tensor)


def test_the_message_names_what_was_expected() -> None:
    optimizer = stepped(BASES["fused SGD"])
    state = copy.deepcopy(optimizer.state_dict())
    state["state"][2]["momentum_buffer"] = torch.zeros(2, 300)
    with pytest.raises(
        StateMismatchError,
        match=r"parameter 2 has a momentum_buffer that is torch.float32 of shape \(2, 300\), "
        r"should be torch.float32 of shape \(2, 3\). Load what state_dict\(\) returned",
    ):
        optimizer.load_state_dict(state)


@pytest.mark.parametrize("own", [None, 3, {}, {"epoch": 1}, {"epoch": 1, "step": -1}, {"epoch": 0.5, "step": 0}])
def test_a_state_has_a_position_of_two_whole_numbers(own: Any) -> None:
    assert saved_position({"block_cyclic": {"epoch": 0, "step": 7}}) == (0, 7)
    for wrong in ({"block_cyclic": own}, own):
        with pytest.raises(StateMismatchError, match="is not of this optimizer: it has no position but"):
            saved_position(wrong)


def test_as_many_parameters_have_a_state_as_have_an_entry_with_something_in_it() -> None:
    assert num_stateful({"state": {0: {"step": 1}, 1: {}, 2: {"step": 1}, "everywhere": 3}}) == 2
    assert num_stateful({"state": {}}) == num_stateful({}) == 0


@pytest.mark.parametrize("made", ["text", [1], {"a": 1}, True])
def test_an_entry_of_another_kind_than_tensors_and_numbers_is_replaced_by_one_of_its_kind_only(made: Any) -> None:
    assert fits(copy.deepcopy(made), made, torch.float32)
    assert not any(fits(other, made, torch.float32) for other in (None, 1, torch.ones(1), set()))
    assert all(fits(other, None, torch.float32) for other in (None, 1, torch.ones(1), "text"))


SAVED = {base: stepped(build).state_dict() for base, build in BASES.items()}


@given(base=st.sampled_from(list(BASES)), data=st.data(), value=VALUES, gone=st.booleans())
def test_any_value_anywhere_in_a_state_is_refused_or_can_be_stepped_with(base, data, value, gone) -> None:
    new = () if gone else (("state", "text"), ("state", 0, "text"))
    state = changed(SAVED[base], data.draw(st.sampled_from([*places(SAVED[base]), *new])), value, gone=gone)
    optimizer = stepped(BASES[base], steps=1)
    before = everything_in(optimizer)
    try:
        optimizer.load_state_dict(state)
    except BcscError:
        assert everything_in(optimizer) == before
    else:
        optimizer.step()


@pytest.mark.parametrize("saved_for", ["train", "eval"])
@pytest.mark.parametrize("loaded_for", ["train", "eval"])
def test_a_state_of_either_mode_of_a_schedule_free_base_is_checked_and_loaded_in_either(saved_for, loaded_for) -> None:
    schedulefree = pytest.importorskip("schedulefree")

    def stepped(mode: str) -> bcsc.BlockCyclic:
        weight = torch.nn.Parameter(torch.ones(2, 3))
        optimizer = bcsc.BlockCyclic(schedulefree.SGDScheduleFree([weight], lr=0.1), 2, mask="gradient")
        optimizer.train()
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        getattr(optimizer, mode)()
        return optimizer

    state, other = stepped(saved_for).state_dict(), stepped(loaded_for)
    other.load_state_dict(state)
    assert other.param_groups[0]["train_mode"] == (saved_for == "train")
    state["state"][0]["z"] = torch.zeros(7, 7)
    with pytest.raises(StateMismatchError, match=r"has a z that is torch.float32 of shape \(7, 7\)"):
        other.load_state_dict(state)
