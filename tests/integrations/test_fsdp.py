"""FSDP2 (``fully_shard``) gives the weights of one process, for every mask and granularity."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import bcsc
from bcsc.choices import GRANULARITIES, MASKS
from bcsc.distributed.collectives import Ranks
from bcsc.errors import UnsupportedOptimizerError
from tests.distributed.group import in_process_group
from tests.integrations.problem import DATASET, NUM_BLOCKS, build_sampler, loss_of

pytestmark = pytest.mark.slow

BASES = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}
CASES = [*product(BASES, MASKS, GRANULARITIES), ("AdamW", "skip-update", "row")]


def build_network() -> nn.Sequential:
    """Layers of widths that two ranks do not share evenly; of one, the second rank has nothing."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 1), nn.Linear(1, 2)).double()


def train(network: nn.Module, batches: Any, base: str, mask: str, granularity: str) -> nn.Module:
    options = {"order": "bernoulli", "rescale": True} if mask == "skip-update" else {"mask": mask}
    optimizer = bcsc.BlockCyclic(
        BASES[base](network.parameters()), NUM_BLOCKS, granularity=granularity, steps_per_epoch=len(batches), **options
    )
    loader = bcsc.BlockCyclicLoader(DATASET, batches)
    for _ in range(2):
        for number, batch in enumerate(loader):
            (loss_of(network, batch) * batches.loss_weight(number)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return network


def whole(p: Tensor) -> Tensor:
    return (p.full_tensor() if isinstance(p, DTensor) else p).detach()


def train_in_shards(ranks: Ranks) -> dict[Any, Any]:
    mesh = init_device_mesh("cpu", (ranks.size,))
    result: dict[Any, Any] = {}
    for case in CASES:
        network = build_network()
        fully_shard(network[0], mesh=mesh)
        fully_shard(network, mesh=mesh)
        train(network, bcsc.RankSampler(build_sampler(), ranks.rank, ranks.size), *case)
        result[case] = [whole(p) for p in network.parameters()]
        with pytest.raises(UnsupportedOptimizerError, match="needs the whole gradient of every unit in each process"):
            bcsc.BlockCyclic(torch.optim.SGD(network.parameters()), 2, order="bernoulli", align=True)
        later = bcsc.BlockCyclic(torch.optim.SGD([torch.nn.Parameter(torch.ones(3))]), 2, align=True)
        later.add_param_group({"params": list(network.parameters())})
        with pytest.raises(UnsupportedOptimizerError, match="needs the whole gradient of every unit in each process"):
            later.epoch_blocks()
        result["sizes"] = [len(p.to_local()) for p in network.parameters()]
    return result


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Any, Any]]:
    return in_process_group(2, train_in_shards, folder=tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_two_processes_agree_with_one(of_two_ranks: list[dict[Any, Any]], case: tuple[str, ...]) -> None:
    alone = train(build_network(), bcsc.RankSampler(build_sampler(), 0, 1), *case)
    for rank in of_two_ranks:
        torch.testing.assert_close(rank[case], [whole(p) for p in alone.parameters()], rtol=0, atol=1e-15)


def test_shards_are_uneven(of_two_ranks: list[dict[Any, Any]]) -> None:
    assert [rank["sizes"] for rank in of_two_ranks] == [[4, 4, 1, 1, 1, 1], [3, 3, 0, 0, 1, 1]]
