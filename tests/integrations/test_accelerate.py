"""Accelerate gives the weights of a plain loop, to the bit in one process, and resumes inside an epoch."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader

import bcsc
from bcsc.distributed.collectives import Ranks
from bcsc.errors import DriftWarning
from tests.distributed.group import in_process_group
from tests.integrations.problem import (
    DATASET,
    NUM_BLOCKS,
    NUM_EPOCHS,
    STEPS_PER_EPOCH,
    assert_same_bits,
    build_base,
    build_network,
    build_sampler,
    loss_of,
    plain_loop,
    weights_of,
)

pytestmark = pytest.mark.slow


def train(folder: Path, resume: bool = False, save_at: int | None = None, **options: Any) -> nn.Module:
    """The recipe: each process has its part of every mini-batch, in a loader that Accelerate leaves alone."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=options.get("batches_per_step", 1))
    network, whole = build_network(), build_sampler(**options)
    optimizer = bcsc.BlockCyclic(build_base(network), NUM_BLOCKS, steps_per_epoch=whole.steps_per_epoch)
    batches = bcsc.RankSampler(whole, accelerator.process_index, accelerator.num_processes)
    loader = bcsc.BlockCyclicLoader(DATASET, batches)
    model, optimizer = accelerator.prepare(network, optimizer)
    accelerator.register_for_checkpointing(loader)
    if resume:
        accelerator.load_state(folder)
    for epoch in range(whole.epoch, NUM_EPOCHS):
        loader.set_epoch(epoch)
        for number, batch in enumerate(loader, start=whole.start):
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model, batch) * batches.loss_weight(number))
                optimizer.step()
                optimizer.zero_grad()
            if epoch * len(loader) + number + 1 == save_at:
                accelerator.save_state(folder)
    return network


def test_one_process_trains_as_a_plain_loop(tmp_path: Path) -> None:
    assert_same_bits(train(tmp_path), plain_loop())


@pytest.mark.parametrize("save_at", [5, STEPS_PER_EPOCH, STEPS_PER_EPOCH + 7])
def test_resumed_anywhere_it_ends_with_the_same_bits(save_at: int, tmp_path: Path) -> None:
    unbroken = train(tmp_path, save_at=save_at)
    assert_same_bits(train(tmp_path, resume=True), unbroken)


def test_accumulated_gradients_are_those_of_the_whole_mini_batches(tmp_path: Path) -> None:
    network = train(tmp_path, num_samples=24, batch_size=2, batches_per_step=4)
    torch.testing.assert_close(weights_of(network), weights_of(plain_loop(24)), rtol=0, atol=1e-14)


def test_a_sampler_in_a_prepared_loader_goes_on_where_it_was_saved() -> None:
    """Accelerate sets the epoch of a loader four times before it asks for the first batch."""
    loader = Accelerator(cpu=True).prepare(DataLoader(DATASET, batch_sampler=(batches := build_sampler())))
    batches.load_state_dict({**batches.state_dict(), "epoch": 1, "step": 7})
    loader.set_epoch(1)
    assert len(list(loader)) == STEPS_PER_EPOCH - 7
    assert len(list(loader)) == STEPS_PER_EPOCH


def tell_accelerate(ranks: Ranks) -> None:
    """What torchrun would say; the process group is there already."""
    rank, size = str(ranks.rank), str(ranks.size)
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=size, LOCAL_WORLD_SIZE=size)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")


def deal_out_whole_batches() -> tuple[int, str]:
    uneven = DataLoaderConfiguration(even_batches=False)
    accelerator = Accelerator(cpu=True, dataloader_config=uneven)
    loader = accelerator.prepare(DataLoader(DATASET, batch_sampler=build_sampler()))
    with pytest.warns(DriftWarning) as caught:
        length = len(list(loader))
    (warning,) = caught
    return length, str(warning.message)


def on_each_rank(ranks: Ranks, folder: Path) -> dict[str, Any]:
    tell_accelerate(ranks)
    unbroken, resumed = train(folder, save_at=17), train(folder, resume=True)
    return {"unbroken": weights_of(unbroken), "resumed": weights_of(resumed), "dealt": deal_out_whole_batches()}


@pytest.fixture(scope="module")
def of_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    return in_process_group(2, on_each_rank, folder / "saved", folder=folder)


@pytest.mark.parametrize("how", ["unbroken", "resumed"])
def test_two_processes_agree_with_one(of_two_ranks: list[dict[str, Any]], how: str) -> None:
    for rank in of_two_ranks:
        torch.testing.assert_close(rank[how], weights_of(plain_loop()), rtol=0, atol=1e-14)


def test_whole_batches_dealt_out_to_two_processes_are_warned_of(of_two_ranks: list[dict[str, Any]]) -> None:
    for rank in of_two_ranks:
        length, message = rank["dealt"]
        assert length <= STEPS_PER_EPOCH // 2
        assert message.startswith("Each of 2 processes takes whole mini-batches from this BlockCyclicSampler.")
        assert "RankSampler(batches, rank, num_ranks)" in message
