"""``torch.compile`` around a step: one graph, broken by nothing but the drawing of the blocks, once an epoch."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import bcsc

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler warns of torch
NUM_BLOCKS = 3
BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, foreach=True),
}


class CountedGraphs:
    """The "eager" backend, counting how often graphs are made and run."""

    def __init__(self) -> None:
        self.made = self.run = 0

    def __call__(self, graph, _inputs):
        self.made += 1

        def run(*arguments):
            self.run += 1
            return graph(*arguments)

        return run


@pytest.fixture
def fresh_dynamo():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def compiled_and_plain(mask: str, base: str, graphs: CountedGraphs, *, draw_before: bool, fullgraph: bool) -> list[int]:
    """Two epochs of a compiled and of a plain loop, which agree to rounding; how many graphs ran at each step."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        small = nn.Linear(30, 2), nn.PReLU(2), nn.Linear(2, 1)  # of their tensors some blocks have nothing
        model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 30), *small)
    networks = [model, copy.deepcopy(model)]
    compiled, plain = (bcsc.BlockCyclic(BASES[base](net.parameters()), NUM_BLOCKS, mask=mask) for net in networks)
    step = torch.compile(compiled.step, backend=graphs, fullgraph=fullgraph)
    per_step = []
    for epoch in range(2):
        for optimizer in (compiled, plain):
            optimizer.set_epoch(epoch)
        for number in range(2 * NUM_BLOCKS):
            for net in networks:
                net.zero_grad()
                net(torch.full((4, 6), 0.1 * number + 0.3)).square().mean().backward()
            if draw_before:
                compiled.epoch_blocks()
            gradients = [p.grad.clone() for p in model.parameters()]
            before = graphs.run
            step()
            plain.step()
            per_step.append(graphs.run - before)
            assert all(map(torch.equal, gradients, (p.grad for p in model.parameters())))
    for one, other in zip(*(net.parameters() for net in networks), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
        assert compiled.state[one].keys() == plain.state[other].keys()
        for name, value in compiled.state[one].items():
            assert torch.allclose(value, plain.state[other][name], rtol=1e-5, atol=1e-6), name
    return per_step


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["update", "gradient"])
@pytest.mark.parametrize("base", BASES)
def test_a_step_is_one_graph_and_few_are_made(mask: str, base: str, fresh_dynamo) -> None:
    graphs = CountedGraphs()
    per_step = compiled_and_plain(mask, base, graphs, draw_before=True, fullgraph=True)  # a break would be an error
    assert per_step == [1] * len(per_step)
    assert graphs.made <= 5  # not one per step or block


@pytest.mark.slow
def test_only_drawing_breaks_the_graph(fresh_dynamo) -> None:
    compiled_and_plain("update", "sgd", CountedGraphs(), draw_before=False, fullgraph=False)
    assert counters["graph_break"]
    assert all("BlockCyclic._draw" in reason for reason in counters["graph_break"])


@pytest.mark.slow
@pytest.mark.parametrize("base", BASES)
def test_under_all_a_step_is_one_graph_once_every_tensor_has_its_state(base: str, fresh_dynamo) -> None:
    graphs = CountedGraphs()
    per_step = compiled_and_plain("all", base, graphs, draw_before=True, fullgraph=False)
    second_epoch = per_step[2 * NUM_BLOCKS :]
    assert second_epoch == [1] * len(second_epoch)
    assert graphs.made <= 10  # not one per step or block


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["update", "gradient", "all"])
@pytest.mark.parametrize("changed", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"weight_decay": 0.1}])
def test_options_that_change_within_an_epoch_count_in_a_compiled_step(mask: str, changed: dict, fresh_dynamo) -> None:
    ends = []
    for is_compiled in (True, False):
        p = nn.Parameter(torch.linspace(-1, 1, 6))
        optimizer = bcsc.BlockCyclic(torch.optim.SGD([p], lr=0.1, foreach=True), 2, mask=mask)
        step = torch.compile(optimizer.step, backend="eager") if is_compiled else optimizer.step
        for number in range(5):
            if number == 1:
                optimizer.param_groups[0].update(changed)
            p.grad = torch.full((6,), 0.5)
            step()
            assert torch.equal(p.grad, torch.full((6,), 0.5))
        ends.append([p.detach(), *optimizer.state[p].values()])
    assert len(ends[0]) == len(ends[1])
    assert all(torch.allclose(*pair) for pair in zip(*ends, strict=True) if pair[0] is not None)


@pytest.mark.slow
def test_a_block_that_nothing_is_in_moves_nothing_in_a_compiled_step(fresh_dynamo) -> None:
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))]
    base = torch.optim.Adagrad(parameters, lr=0.1)
    optimizer = bcsc.BlockCyclic(base, 50, mask="all", order="bernoulli", granularity="tensor")
    step = torch.compile(optimizer.step, backend="eager")
    while any(49 in present for present in optimizer.epoch_blocks().present) or optimizer.block != 49:
        optimizer.advance()
    for p in parameters:
        p.grad = torch.ones_like(p)
    step()
    assert all(torch.equal(p, torch.ones_like(p)) for p in parameters)
    assert [base.state[p]["step"].item() for p in parameters] == [0, 0]


@pytest.mark.slow
def test_the_scores_of_an_alignment_begin_outside_the_graph(fresh_dynamo) -> None:
    graphs, model = CountedGraphs(), nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimizer = bcsc.BlockCyclic(BASES["sgd"](model.parameters()), 2, granularity="tensor", align=True)
    step = torch.compile(optimizer.step, backend=graphs, fullgraph=True)  # a break would be an error
    for number in range(4):
        optimizer.zero_grad()
        model(torch.full((2, 3), 0.5 + number)).square().mean().backward()
        optimizer.epoch_blocks()
        step()
    assert graphs.run == 4


@pytest.mark.slow
@pytest.mark.parametrize("moves", [{}, {"rescale": True}, {"align": True}])
@pytest.mark.parametrize("nesterov", [False, True])
def test_what_is_excluded_is_in_the_same_graph(moves: Mapping[str, Any], nesterov: bool, fresh_dynamo) -> None:
    """Also where the base writes into gradients, as it does with Nesterov's momentum."""
    graphs, ends = CountedGraphs(), []
    for is_compiled in (True, False):
        p, excluded = nn.Parameter(torch.linspace(-1, 1, 6)), nn.Parameter(torch.ones(3))
        base = torch.optim.SGD([p, excluded], lr=0.1, momentum=0.9, nesterov=nesterov, foreach=True)
        optimizer = bcsc.BlockCyclic(base, 2, exclude=[excluded], **moves)
        step = torch.compile(optimizer.step, backend=graphs, fullgraph=True) if is_compiled else optimizer.step
        for number in range(4):
            for each in (p, excluded):
                each.grad = torch.full_like(each, 0.5 + number)
            optimizer.epoch_blocks()
            step()
            assert all(torch.equal(each.grad, torch.full_like(each, 0.5 + number)) for each in (p, excluded))
        ends.append([p.detach(), excluded.detach(), *(base.state[each]["momentum_buffer"] for each in (p, excluded))])
    assert graphs.run == 4
    assert all(torch.allclose(*pair) for pair in zip(*ends, strict=True))
