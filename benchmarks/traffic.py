"""Bytes that each rank sends per round, counted, beside those of DistributedDataParallel.

    torchrun --nproc-per-node 2 benchmarks/traffic.py

A round of DDP is one all-reduce of the gradient: one mini-batch split over the ranks, or W of them, one per rank.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bcsc import BlockCyclic, models
from bcsc.choices import Mask
from bcsc.distributed.block_gradients import sum_before_steps
from bcsc.distributed.block_parallel import BlockParallel
from bcsc.distributed.collectives import Ranks
from bcsc.distributed.process_group import process_group

ROUNDS = 16


def learn(model: nn.Module) -> None:
    """A gradient for every parameter."""
    model(torch.ones(2, 1, 28, 28)).square().sum().backward()


def bytes_of_ddp(ranks: Ranks) -> float:
    """Per round, by a hook that does what DDP does without one, and counts."""
    model = DistributedDataParallel(models.build("lenet4", 10, 1, image_size=28, seed=0))

    def counting(_state: object, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(ranks.sum_(bucket.buffer().div_(ranks.size)))
        return done

    model.register_comm_hook(None, counting)
    before = ranks.bytes_sent
    for _ in range(ROUNDS):
        learn(model)
    return (ranks.bytes_sent - before) / ROUNDS


def bytes_of_ours(ranks: Ranks, mode: str, mask: Mask, num_blocks: int) -> float:
    """Per round, in one of our modes."""
    model = models.build("lenet4", 10, 1, image_size=28, seed=0)
    base = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    optimizer = BlockCyclic(base, num_blocks, mask=mask)
    if mode == "exact":
        sum_before_steps(optimizer, ranks)
    stepped = BlockParallel(optimizer, ranks) if mode == "blocks" else optimizer
    before = ranks.bytes_sent
    for _ in range(ROUNDS):
        stepped.zero_grad()
        learn(model)
        stepped.step()
    return (ranks.bytes_sent - before) / ROUNDS


def main() -> None:
    torch.set_num_threads(1)
    with process_group() as ranks:
        ddp = bytes_of_ddp(ranks)
        lines = [f"ranks {ranks.size}  DDP  {ddp:,.0f} bytes per round"]
        for mode in ("exact", "blocks"):
            for mask in ("update", "gradient", "all"):
                for num_blocks in (4, 8):
                    sent = bytes_of_ours(ranks, mode, mask, num_blocks)
                    lines.append(f"{mode:<7} {mask:<9} M = {num_blocks}  {sent:>9,.0f} bytes  {sent / ddp:.3f} of DDP")
        if ranks.rank == 0:
            print("\n".join(lines))


if __name__ == "__main__":
    main()
