"""``torch.distributed.checkpoint``: a run goes on in any number of processes; what it drops is missed aloud."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import bcsc
from bcsc.choices import MASKS
from bcsc.distributed.collectives import Ranks
from bcsc.errors import StateMismatchError
from tests.distributed.group import in_process_group
from tests.integrations.problem import DATASET, NUM_BLOCKS, STEPS_PER_EPOCH, build_sampler, loss_of
from tests.integrations.test_fsdp import BASES, build_network, whole
from tests.odd_optimizers import Counting

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized, assuming the int"),
]

CASES = [*product(BASES, MASKS), ("AdamW", "magma")]
IN_SHARDS = CASES[:6:5]  # of each base one, of the masks the first and the last
SAVED_AT = (1, 5)  # epoch and inner step


class Training:
    """A network, in shards if there are several ranks, and what trains it."""

    def __init__(self, ranks: Ranks, base: str, mask: str) -> None:
        self.network = build_network()
        if ranks.size > 1:
            fully_shard(self.network, mesh=init_device_mesh("cpu", (ranks.size,)))
        self.batches = bcsc.RankSampler(build_sampler(), ranks.rank, ranks.size)
        options = {"order": "bernoulli", "align": True, "granularity": "row"} if mask == "magma" else {"mask": mask}
        self.optimizer = bcsc.BlockCyclic(
            BASES[base](self.network.parameters()), NUM_BLOCKS, steps_per_epoch=STEPS_PER_EPOCH, **options
        )
        self.loader = bcsc.BlockCyclicLoader(DATASET, self.batches)

    def state(self) -> dict[str, Any]:
        optimizer = bcsc.DistributedState(self.network, self.optimizer)
        return {"model": self.network, "optimizer": optimizer, "loader": self.loader}

    def save(self, folder: Path) -> None:
        dcp.save(self.state(), checkpoint_id=folder)

    def load(self, folder: Path) -> None:
        dcp.load(self.state(), checkpoint_id=folder)

    def run(self, save_to: Path | None = None) -> list[Tensor]:
        """Train to the end of two epochs; the weights."""
        for epoch in range(self.optimizer.epoch, 2):
            self.loader.set_epoch(epoch)
            for number, batch in enumerate(self.loader, start=self.batches.whole.start):
                (loss_of(self.network, batch) * self.batches.loss_weight(number)).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                if save_to is not None and (self.optimizer.epoch, self.optimizer.inner_step) == SAVED_AT:
                    self.save(save_to)
        return [whole(p) for p in self.network.parameters()]


def alone(base: str = "AdamW", mask: str = "update") -> Training:
    return Training(Ranks(0, 1), base, mask)


def begun() -> Training:
    """A training of one process that has made a step."""
    training = alone()
    loss_of(training.network, next(iter(training.loader))).backward()
    training.optimizer.step()
    training.optimizer.zero_grad()
    return training


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_resumed_in_one_process_it_ends_with_the_same_bits(case: tuple[str, str], tmp_path: Path) -> None:
    unbroken, resumed = alone(*case).run(save_to=tmp_path), alone(*case)
    resumed.load(tmp_path)
    assert (resumed.optimizer.epoch, resumed.optimizer.inner_step) == SAVED_AT
    assert all(map(torch.equal, resumed.run(), unbroken))


def test_saved_before_the_first_step_neither_goes_on_as_if_there_had_been_one(tmp_path: Path) -> None:
    """torch makes room for a state by a step, after which Adam would count from one."""
    saved, resumed = alone(), alone()
    saved.save(tmp_path)
    assert (saved.optimizer.inner_step, len(saved.optimizer.state)) == (0, 0)
    resumed.load(tmp_path)
    for weights in (saved.run(), resumed.run()):
        assert all(map(torch.equal, weights, alone().run()))


@pytest.mark.parametrize("mask", MASKS)
def test_parameters_without_a_state_yet_come_back_without_one(mask: str, tmp_path: Path) -> None:
    unused = torch.nn.Linear(2, 2)

    def built() -> tuple[torch.nn.Module, bcsc.BlockCyclic]:
        network = torch.nn.Sequential(build_network(), unused)
        base = torch.optim.AdamW(network.parameters(), lr=0.01)
        return network, bcsc.BlockCyclic(base, 3, mask=mask, granularity="tensor")

    network, optimizer = built()
    loss_of(network[0], DATASET[:8]).backward()
    optimizer.step()
    having = sum(bool(entry) for entry in optimizer.state.values())
    assert 0 < having < len([*network.parameters()])
    dcp.save({"optimizer": bcsc.DistributedState(network, optimizer)}, checkpoint_id=tmp_path)
    assert sum(bool(entry) for entry in optimizer.state.values()) == having
    other, resumed = built()
    other.load_state_dict(network.state_dict())
    dcp.load({"optimizer": bcsc.DistributedState(other, resumed)}, checkpoint_id=tmp_path)
    assert sum(bool(entry) for entry in resumed.state.values()) == having
    for each, stepped in ((network, optimizer), (other, resumed)):
        stepped.zero_grad()
        loss_of(each[0], DATASET[8:16]).backward()
        stepped.step()
    assert all(map(torch.equal, network.parameters(), other.parameters()))


def test_saved_before_the_first_step_a_base_that_counts_among_its_options_has_counted_none() -> None:
    network = build_network()
    optimizer = bcsc.BlockCyclic(Counting(network.parameters()), 2)
    before = dict(optimizer.param_groups[0])
    bcsc.DistributedState(network, optimizer).state_dict()
    assert optimizer.param_groups[0] == before


def test_gradients_that_wait_for_a_step_do_not_keep_the_state_from_being_loaded(tmp_path: Path) -> None:
    saved, resumed = begun(), alone()
    saved.save(tmp_path)
    loss_of(resumed.network, DATASET[:8]).backward()
    gradients = [p.grad.clone() for p in resumed.network.parameters()]
    resumed.load(tmp_path)
    assert len(resumed.optimizer.state) == len(gradients)
    assert all(torch.equal(p.grad, g) for p, g in zip(resumed.network.parameters(), gradients, strict=True))


def test_a_plain_load_into_a_new_optimizer_is_refused(tmp_path: Path) -> None:
    dcp.save({"optimizer": begun().optimizer}, checkpoint_id=tmp_path)
    with pytest.raises(StateMismatchError, match="of 0 parameters, of 6 it was saved.*load a bcsc.Distri"):
        dcp.load({"optimizer": alone().optimizer}, checkpoint_id=tmp_path)


def test_a_state_of_which_torch_has_dropped_a_part_is_refused() -> None:
    saved, resumed = begun(), alone()
    state = get_optimizer_state_dict(saved.network, saved.optimizer)
    with pytest.raises(StateMismatchError, match="drop the entry: save a bcsc.DistributedState"):
        set_optimizer_state_dict(resumed.network, resumed.optimizer, state)


def test_parameters_in_another_order_are_refused(tmp_path: Path) -> None:
    """By their names each would get its own state, but the blocks would be others."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    one, other = (
        bcsc.BlockCyclic(torch.optim.SGD(parameters, lr=0.1, momentum=0.9), 2)
        for parameters in (list(network.parameters()), [*network[1].parameters(), *network[0].parameters()])
    )
    dcp.save({"optimizer": bcsc.DistributedState(network, one)}, checkpoint_id=tmp_path)
    with pytest.raises(StateMismatchError, match=r"saved with '0.weight' where it has '1.weight' now.*order"):
        dcp.load({"optimizer": bcsc.DistributedState(network, other)}, checkpoint_id=tmp_path)


def on_each_rank(ranks: Ranks, folder: Path) -> dict[Any, Any]:
    result = {}
    for case in IN_SHARDS:
        unbroken = Training(ranks, *case).run(save_to=folder / "-".join(case))
        resumed = Training(ranks, *case)
        resumed.load(folder / "-".join(case))
        result[case] = unbroken, resumed.run()
    return result


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[Any, Any]], Path]:
    folder = tmp_path_factory.mktemp("ranks")
    return in_process_group(2, on_each_rank, folder, folder=folder), folder


@pytest.mark.parametrize("case", IN_SHARDS, ids="-".join)
def test_resumed_in_shards_it_ends_with_the_same_bits(of_two_ranks: Any, case: tuple[str, str]) -> None:
    for rank in of_two_ranks[0]:
        unbroken, resumed = rank[case]
        assert all(map(torch.equal, unbroken, resumed))


@pytest.mark.parametrize("case", IN_SHARDS, ids="-".join)
def test_saved_in_two_processes_it_goes_on_in_one(of_two_ranks: Any, case: tuple[str, str]) -> None:
    resumed = alone(*case)
    resumed.load(of_two_ranks[1] / "-".join(case))
    torch.testing.assert_close(resumed.run(), of_two_ranks[0][0][case][0], rtol=0, atol=1e-15)


@pytest.mark.parametrize("lost", ["param_groups", "state", "block_cyclic"])
@pytest.mark.parametrize("instead", [None, [], "text", 1])
def test_what_is_no_state_is_refused(lost: str, instead: object) -> None:
    training = Training(Ranks(), next(iter(BASES)), "update")
    state = bcsc.DistributedState(training.network, training.optimizer)
    with pytest.raises(StateMismatchError, match="is not"):
        state.load_state_dict({**state.state_dict(), lost: instead})
