"""For loops of one's own around ``DistributedDataParallel``: send the active block's gradient only."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from bcsc.distributed.packing import packed, unpack_
from bcsc.optim.block_cyclic import BlockCyclic


def active_block_hook(optimizer: BlockCyclic, bucket: GradBucket) -> Future[Tensor]:
    """Average over the ranks what the next step of ``optimizer`` needs of a bucket; the rest becomes zero.

    Register it by ``model.register_comm_hook(optimizer, active_block_hook)``. Under ``mask="update"`` the step needs
    everything. Without the hook the result is the same, at M times the traffic.
    """
    gradients = bucket.gradients()
    if optimizer.mask == "update":
        masks = [torch.ones((), dtype=torch.bool, device=gradient.device) for gradient in gradients]
    else:
        cut, block = optimizer.cut(), optimizer.block
        labels_of = {id(p): labels for p, labels in zip(cut.parameters, cut.labels, strict=True)}
        masks = [labels_of[id(p)] == block for p in bucket.parameters()]
    message = packed(gradients, masks).div_(dist.get_world_size())

    def put_back(future: Future[Any]) -> Tensor:
        buffer: Tensor = bucket.buffer().zero_()
        unpack_(future.value()[0], gradients, masks)
        return buffer

    sent: Future[Any] = dist.all_reduce(message, async_op=True).get_future()
    return sent.then(put_back)
