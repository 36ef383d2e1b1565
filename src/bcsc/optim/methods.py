"""The paper's methods, on its two axes: which samples an inner step sees, and which block it moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch.optim import Optimizer

from bcsc.choices import Order, Samples
from bcsc.errors import check_choice
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.optim.sampler import BlockCyclicSampler


@dataclass(frozen=True)
class Method:
    """One row of the table: what happens at inner step (t, j).

    Attributes:
        title: its name in full.
        section: where the paper describes it.
        samples: the mini-batch, see ``BlockCyclicSampler``.
        blocks: the block that moves: everything at once, block j, or one drawn at random.
        one_pass: an epoch is one pass over the data instead of M.
    """

    title: str
    section: str
    samples: Samples
    blocks: Literal["everything", "cyclic", "random"]
    one_pass: bool = False

    def num_blocks(self, requested: int) -> int:
        """M: the one requested, or 1 where everything moves at once."""
        return 1 if self.blocks == "everything" else requested

    def batches_per_step(self, sampler: BlockCyclicSampler) -> int:
        """How many mini-batches' gradients are accumulated into one inner step."""
        return sampler.batches_per_step


METHODS: Mapping[str, Method] = {
    "sgd": Method("stochastic gradient descent", "3.1", "one-shuffle", "everything"),
    "bcd": Method("randomized block coordinate descent", "3.2", "everything", "random"),
    "sbc": Method("stochastic random block coordinate descent", "3.3", "random", "random"),
    "sbc-one-pass": Method("the same with SGD's epoch", "3.3", "random", "random", one_pass=True),
    "rbc": Method("random block coordinate descent", "4.2", "one-shuffle", "cyclic"),
    "bcsc": Method("block-cyclic stochastic coordinate descent", "4.3", "shuffle-per-block", "cyclic"),
}


def build_method(
    name: str, base: Optimizer, *, num_samples: int, batch_size: int, num_blocks: int, seed: int = 0, **options: Any
) -> tuple[BlockCyclic, BlockCyclicSampler]:
    """The optimizer and the sampler of a method; ``options`` (mask, granularity, ...) go to the optimizer."""
    method = METHODS[check_choice("method", name, METHODS)]
    num_blocks = method.num_blocks(num_blocks)
    order: Order = "random" if method.blocks == "random" else "cyclic"
    sampler = BlockCyclicSampler(
        num_samples, batch_size, num_blocks, seed=seed, samples=method.samples, one_pass=method.one_pass
    )
    return BlockCyclic(base, num_blocks, seed=seed, order=order, **options), sampler
