"""The table of methods: the paper's two axes, and what an epoch of each costs. Their steps: test_against_the_oracle."""

from typing import get_args

import pytest
import torch
from torch import nn

import bcsc
from bcsc.choices import Samples
from bcsc.errors import InvalidArgumentError
from bcsc.optim.methods import METHODS, build_method

NUM_SAMPLES, BATCH_SIZE, NUM_BLOCKS = 20, 8, 4  # three batches a pass, the last one short


def built(name: str, **options: str) -> tuple[bcsc.BlockCyclic, bcsc.BlockCyclicSampler]:
    base = torch.optim.SGD(nn.Linear(3, 4).parameters(), lr=0.1)
    sizes = {"num_samples": NUM_SAMPLES, "batch_size": BATCH_SIZE, "num_blocks": NUM_BLOCKS}
    return build_method(name, base, **sizes, seed=1, **options)


def test_the_table_is_the_papers() -> None:
    of_the_paper = {name: method for name, method in METHODS.items() if method.source.startswith("Sect. ")}
    axes = {name: (method.source[6:], method.samples, method.blocks) for name, method in of_the_paper.items()}
    assert axes == {
        "sgd": ("3.1", "one-shuffle", "everything"),
        "bcd": ("3.2", "everything", "random"),
        "sbc": ("3.3", "random", "random"),
        "sbc-one-pass": ("3.3", "random", "random"),
        "rbc": ("4.2", "one-shuffle", "cyclic"),
        "bcsc": ("4.3", "shuffle-per-block", "cyclic"),
    }
    assert {method.samples for method in METHODS.values()} == set(get_args(Samples))


@pytest.mark.parametrize(
    ("name", "blocks", "steps", "batches_per_step"),
    [
        ("sgd", 1, 3, 1),
        ("bcd", 4, 4, 3),
        ("sbc", 4, 12, 1),
        ("sbc-one-pass", 4, 3, 1),
        ("rbc", 4, 12, 1),
        ("bcsc", 4, 12, 1),
    ],
)
def test_an_epoch_has_the_blocks_and_steps_of_its_method(
    name: str, blocks: int, steps: int, batches_per_step: int
) -> None:
    optimizer, sampler = built(name)
    assert optimizer.num_blocks == METHODS[name].num_blocks(NUM_BLOCKS) == blocks
    assert sampler.batches_per_step == batches_per_step
    assert len(sampler) == steps * batches_per_step


@pytest.mark.parametrize("name", METHODS)
def test_blocks_come_in_turn_where_the_method_is_cyclic_and_else_in_the_order_of_a_draw(name: str) -> None:
    optimizer, _ = built(name)
    blocks = [optimizer.block_at(step) for step in range(40)]
    in_turn = [step % METHODS[name].num_blocks(NUM_BLOCKS) for step in range(40)]
    assert (blocks == in_turn) == (METHODS[name].blocks != "random")


def test_options_go_to_the_optimizer_and_an_unknown_method_is_refused() -> None:
    assert built("bcsc", mask="all")[0].mask == "all"
    assert built("bcsc", order="random")[0].order == "random"
    assert built("bcsc")[0].order == "cyclic"
    with pytest.raises(InvalidArgumentError, match="method must be one of sgd, bcd, .*got 'bscs'. Did you mean 'bcsc'"):
        built("bscs")
