"""The Trainer of Transformers gives the bits of a plain loop, and resumes inside an epoch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import bcsc
from tests.integrations.problem import (
    NUM_BLOCKS,
    NUM_EPOCHS,
    NUM_SAMPLES,
    STEPS_PER_EPOCH,
    assert_same_bits,
    build_base,
    build_sampler,
)

pytestmark = pytest.mark.slow


class Sentences(Dataset[dict[str, Tensor]]):
    """Eight words each, and whether the sum of their numbers is odd."""

    def __init__(self) -> None:
        self.words = torch.randint(32, (NUM_SAMPLES, 8), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.words[index], "labels": self.words[index].sum() % 2}


def build_bert() -> nn.Module:
    sizes = {"vocab_size": 32, "hidden_size": 8, "intermediate_size": 8, "max_position_embeddings": 8}
    config = BertConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return BertForSequenceClassification(config).double()


class BlockCyclicTrainer(Trainer):
    def get_train_dataloader(self) -> bcsc.BlockCyclicLoader:
        return bcsc.BlockCyclicLoader(self.train_dataset, build_sampler(), collate_fn=self.data_collator)


def train(folder: Path, resume_from: Path | None = None, **options: Any) -> nn.Module:
    network = build_bert()
    optimizer = bcsc.BlockCyclic(build_base(network), NUM_BLOCKS, steps_per_epoch=STEPS_PER_EPOCH)
    quiet = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no", "save_strategy": "no"}
    arguments = TrainingArguments(str(folder), num_train_epochs=NUM_EPOCHS, **{**quiet, **options})
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    trainer = BlockCyclicTrainer(network, arguments, train_dataset=Sentences(), optimizers=(optimizer, constant))
    trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
    assert trainer.state.global_step == NUM_EPOCHS * STEPS_PER_EPOCH
    return network


def plain_training() -> nn.Module:
    network, sentences = build_bert(), Sentences()
    optimizer = bcsc.BlockCyclic(build_base(network), NUM_BLOCKS)
    batches = build_sampler()
    for epoch in range(NUM_EPOCHS):
        optimizer.set_epoch(epoch)
        batches.set_epoch(epoch)
        for batch in batches:
            words = sentences.words[batch]
            network(input_ids=words, labels=words.sum(1) % 2).loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)  # the Trainer's default
            optimizer.step()
            optimizer.zero_grad()
    return network


def test_the_trainer_trains_as_a_plain_loop(tmp_path: Path) -> None:
    assert_same_bits(train(tmp_path), plain_training())


def test_resumed_anywhere_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    unbroken = train(tmp_path, save_strategy="steps", save_steps=10)
    checkpoints = sorted(tmp_path.glob("checkpoint-?0"))
    assert [path.name for path in checkpoints] == ["checkpoint-10", "checkpoint-20", "checkpoint-30"]
    for checkpoint in checkpoints:
        assert_same_bits(train(tmp_path, checkpoint), unbroken)
