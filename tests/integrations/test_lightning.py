"""Lightning's Trainer gives the weights of a plain loop, to the bit where there is one process."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader

import bcsc
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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`, callbacks used to create"),
]


class Module(LightningModule):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.network, self.options = build_network(), options

    def training_step(self, batch: list[Tensor]) -> Tensor:
        return loss_of(self.network, batch)

    def configure_optimizers(self) -> bcsc.BlockCyclic:
        return bcsc.BlockCyclic(build_base(self.network), NUM_BLOCKS, **self.options)


class ModuleOnEachRank(Module):
    def train_dataloader(self) -> bcsc.BlockCyclicLoader:
        self.batches = bcsc.RankSampler(build_sampler(), self.global_rank, self.trainer.world_size)
        return bcsc.BlockCyclicLoader(DATASET, self.batches)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return loss_of(self.network, batch) * self.batches.loss_weight(batch_idx)


class SetEpoch(Callback):
    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, batch: object, batch_idx: int) -> None:
        if batch_idx == 0:
            trainer.optimizers[0].set_epoch(trainer.current_epoch)


def fit(module: Module, loader: Any = None, ckpt_path: Path | None = None, **options: Any) -> nn.Module:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    settings = {"accelerator": "cpu", "enable_checkpointing": "callbacks" in options, "max_epochs": NUM_EPOCHS}
    Trainer(**{**quiet, **settings, **options}).fit(module, loader, ckpt_path=ckpt_path)
    return module.network


def load(num_workers: int = 0) -> bcsc.BlockCyclicLoader:
    return bcsc.BlockCyclicLoader(DATASET, build_sampler(), num_workers=num_workers)


@pytest.mark.parametrize("loader", [DataLoader(DATASET, batch_sampler=build_sampler()), load(), load(num_workers=2)])
def test_with_steps_per_epoch_nobody_has_to_set_an_epoch(loader: Any) -> None:
    assert_same_bits(fit(Module(steps_per_epoch=STEPS_PER_EPOCH), loader), plain_loop())


def test_a_callback_sets_the_epoch_where_epochs_are_cut_short() -> None:
    network = fit(Module(), load(), limit_train_batches=5, callbacks=[SetEpoch()], enable_checkpointing=False)
    assert_same_bits(network, plain_loop(steps=5))


def test_cut_short_and_resumed_anywhere_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    """Lightning leaves the start of an epoch out where a checkpoint was taken at the end of the one before."""
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=1, filename="{step}", save_top_k=-1)
    unbroken = fit(Module(), load(), limit_train_batches=5, callbacks=[SetEpoch(), saving])
    checkpoints = sorted(tmp_path.glob("*.ckpt"))
    assert len(checkpoints) == NUM_EPOCHS * 5
    cut_short = {"limit_train_batches": 5, "callbacks": [SetEpoch()], "enable_checkpointing": False}
    for checkpoint in checkpoints:
        assert_same_bits(fit(Module(), load(), checkpoint, **cut_short), unbroken)


def test_accumulated_gradients_are_those_of_the_whole_mini_batches() -> None:
    batches = build_sampler(24, batch_size=2, batches_per_step=4)
    module = Module(steps_per_epoch=batches.steps_per_epoch)
    network = fit(module, bcsc.BlockCyclicLoader(DATASET, batches), accumulate_grad_batches=4)
    torch.testing.assert_close(weights_of(network), weights_of(plain_loop(24)), rtol=0, atol=1e-14)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resumed_anywhere_it_ends_with_the_same_bits(num_workers: int, tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=5, filename="{step}", save_top_k=-1)
    unbroken = fit(Module(steps_per_epoch=STEPS_PER_EPOCH), load(num_workers), callbacks=[saving])
    checkpoints = sorted(tmp_path.glob("*.ckpt"))
    assert len(checkpoints) == NUM_EPOCHS * STEPS_PER_EPOCH // 5
    for checkpoint in checkpoints:
        assert_same_bits(fit(Module(steps_per_epoch=STEPS_PER_EPOCH), load(num_workers), checkpoint), unbroken)


def test_resumed_between_epochs_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, every_n_epochs=1, save_top_k=-1)
    unbroken = fit(Module(steps_per_epoch=STEPS_PER_EPOCH), load(), callbacks=[saving])
    first, *_ = sorted(tmp_path.glob("*.ckpt"))
    assert_same_bits(fit(Module(steps_per_epoch=STEPS_PER_EPOCH), load(1), first), unbroken)


def test_two_processes_agree_with_one() -> None:
    ddp = DDPStrategy(process_group_backend="gloo", start_method="spawn")
    network = fit(ModuleOnEachRank(steps_per_epoch=STEPS_PER_EPOCH), devices=2, strategy=ddp)
    torch.testing.assert_close(weights_of(network), weights_of(plain_loop()), rtol=0, atol=1e-14)
