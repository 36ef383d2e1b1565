"""The paper's methods and their relatives: which samples an inner step sees, which block it moves, and how far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        source: where it is described: a section of the paper, or another paper.
        samples: the mini-batch, see ``BlockCyclicSampler``.
        blocks: the block that moves: everything at once, block j, one drawn at random, or every unit by itself with
            probability 1 / M.
        one_pass: an epoch is one pass over the data instead of M.
        moves: options of ``BlockCyclic`` that say how far a block moves.
    """

    title: str
    source: str
    samples: Samples
    blocks: Literal["everything", "cyclic", "random", "bernoulli"]
    one_pass: bool = False
    moves: Mapping[str, bool] = field(default_factory=dict)

    def num_blocks(self, requested: int) -> int:
        """M: the one requested, or 1 where everything moves at once."""
        return 1 if self.blocks == "everything" else requested

    @property
    def order(self) -> Order:
        """In which order ``BlockCyclic`` is to move the blocks."""
        return "cyclic" if self.blocks == "everything" else self.blocks

    def redraw(self, num_blocks: int) -> int | None:
        """After how many steps the blocks are drawn anew, where that is not once an epoch: after every cycle."""
        return num_blocks if self.one_pass and self.blocks == "cyclic" else None


JOO = "Joo et al., On Surprising Effectiveness of Masking Updates in Adaptive Optimizers, arXiv 2602.15322"

METHODS: Mapping[str, Method] = {
    "sgd": Method("stochastic gradient descent", "Sect. 3.1", "one-shuffle", "everything"),
    "bcd": Method("randomized block coordinate descent", "Sect. 3.2", "everything", "random"),
    "sbc": Method("stochastic random block coordinate descent", "Sect. 3.3", "random", "random"),
    "sbc-one-pass": Method("the same with SGD's epoch", "Sect. 3.3", "random", "random", one_pass=True),
    "rbc": Method("random block coordinate descent", "Sect. 4.2", "one-shuffle", "cyclic"),
    "bcsc": Method("block-cyclic stochastic coordinate descent", "Sect. 4.3", "shuffle-per-block", "cyclic"),
    "one-pass": Method(
        "BCSC's blocks at SGD's cost: fresh ones after every cycle, moved M times as far",
        "docs/masked-updates.md",
        "one-shuffle",
        "cyclic",
        one_pass=True,
        moves={"rescale": True},
    ),
    "skip-update": Method("SkipUpdate", JOO, "one-shuffle", "bernoulli", one_pass=True, moves={"rescale": True}),
    "magma": Method("momentum-aligned masking", JOO, "one-shuffle", "bernoulli", one_pass=True, moves={"align": True}),
}


def build_method(
    name: str, base: Optimizer, *, num_samples: int, batch_size: int, num_blocks: int, seed: int = 0, **options: Any
) -> tuple[BlockCyclic, BlockCyclicSampler]:
    """The optimizer and the sampler of a method; ``options`` (mask, granularity, ...) go to the optimizer.

    Where an option is one of the method's own, such as ``rescale`` of ``"one-pass"``, the one given counts.
    """
    method = METHODS[check_choice("method", name, METHODS)]
    num_blocks = method.num_blocks(num_blocks)
    sampler = BlockCyclicSampler(
        num_samples, batch_size, num_blocks, seed=seed, samples=method.samples, one_pass=method.one_pass
    )
    options = {"order": method.order, "redraw": method.redraw(num_blocks), **method.moves, **options}
    return BlockCyclic(base, num_blocks, seed=seed, **options), sampler
