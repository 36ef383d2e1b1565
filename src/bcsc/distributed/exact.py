"""The exact mode: every rank has the whole network, and computes the gradient of its part of each mini-batch.

The gradients are summed right before the optimizer steps, and of them only what the step needs: under
``mask="gradient"`` and ``"all"`` the active block's entries, m / M numbers of m; under ``"update"`` all of them, as the
state of the base learns from all.
"""

from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from bcsc.distributed.collectives import Ranks
from bcsc.distributed.packing import packed, unpack_
from bcsc.optim.block_cyclic import BlockCyclic


@torch.no_grad()
def sum_gradients(optimizer: BlockCyclic, ranks: Ranks) -> None:
    """Sum over the ranks what the next step needs of the gradients, in one message.

    What it does not need is set to zero, so that ``.grad`` is the same on every rank; it is then the gradient inside
    the active block and nothing outside. Every rank must have gradients for the same parameters.
    """
    _, parameters, labels, _ = optimizer.cut()
    gradients = [p.grad for p in parameters if p.grad is not None]
    if optimizer.mask == "update":
        unpack_(ranks.sum_(packed(gradients)), gradients)
        return
    block = optimizer.block
    active = [own == block for p, own in zip(parameters, labels, strict=True) if p.grad is not None]
    summed = ranks.sum_(packed(gradients, active))
    for gradient in gradients:
        gradient.zero_()
    unpack_(summed, gradients, active)


def sum_before_steps(optimizer: BlockCyclic, ranks: Ranks) -> RemovableHandle:
    """From now on let every step of the optimizer begin by summing the gradients over the ranks."""

    def hook(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        sum_gradients(optimizer, ranks)

    return optimizer.register_step_pre_hook(hook)
