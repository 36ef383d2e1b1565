"""Exchange between ranks what the next step needs of the gradient: that of the active block alone, where it can.

Under ``mask="gradient"`` and ``"all"`` a step needs the active block's entries, m / M numbers of m; under ``"update"``
all of them, as the state of the base learns from all. What a block has of the packed gradients is found once an epoch,
so that no step waits for the device.

``sum_before_steps`` is the exact mode: every rank has the whole network, and computes the gradient of its part of each
mini-batch. ``active_block_hook`` is for loops of one's own around ``DistributedDataParallel``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.utils.hooks import RemovableHandle

from bcsc.distributed.collectives import Ranks
from bcsc.errors import InvalidArgumentError
from bcsc.optim.block_cyclic import BlockCyclic


def packed(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors' scalars one after the other: one message instead of many."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def unpack_(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Put the scalars of a packed buffer where they came from."""
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    torch._foreach_copy_(list(tensors), [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)])


def indices_by_label(labels: Tensor, num_labels: int) -> tuple[Tensor, ...]:
    """For each label where in a flat vector its scalars are, in order. Waits for the device."""
    counts = torch.bincount(labels, minlength=num_labels).tolist()
    return torch.split(torch.argsort(labels, stable=True), counts)


def needed_by_block(labels: Tensor, num_blocks: int) -> tuple[Tensor, ...]:
    """For each block where its scalars are, and those of no block, labelled ``num_blocks``, which every step moves."""
    *of_blocks, always = indices_by_label(labels, num_blocks + 1)
    return tuple(torch.cat([own, always]) if len(always) else own for own in of_blocks)


@torch.no_grad()
def sum_gradients(optimizer: BlockCyclic, ranks: Ranks) -> None:
    """Sum over the ranks what the next step needs of the gradients, in one message.

    What it does not need is set to zero, so that ``.grad`` is the same on every rank; it is then the gradient inside
    the active block and nothing outside. Where some ranks have no gradient of a parameter, as with layers that are
    skipped at random, it counts as zero there; where none has one, it stays without.
    """
    blocks = optimizer.epoch_blocks()
    parameters = [*blocks.parameters, *(p for p in optimizer.exclude if p.requires_grad)]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    missing = [number for number, p in enumerate(parameters) if p.grad is None]
    having = gradients[0].new_ones(len(parameters))
    for number in missing:  # one by one: a list of places would have to go to the device at every step
        having[number] = 0
    if optimizer.mask == "update":
        message = ranks.sum_(packed([*gradients, having]))
        summed = message[: -len(having)]
    else:
        flat, active = packed(gradients), needed_now(optimizer, parameters)
        message = ranks.sum_(torch.cat([flat.index_select(0, active), having]))
        summed = flat.zero_().index_copy_(0, active, message[: -len(having)])
    unpack_(summed, gradients)
    counts = message[-len(having) :].tolist() if missing else ()  # only then there is something to wait for
    for number in missing:
        parameters[number].grad = gradients[number] if counts[number] else None


def needed_now(optimizer: BlockCyclic, parameters: Sequence[Tensor]) -> Tensor:
    """Where in the packed gradients those of the active block are, and of what is in no block."""
    blocks, num_blocks = optimizer.epoch_blocks(), optimizer.num_blocks
    in_no_block = parameters[len(blocks.labels) :]

    def of_blocks() -> tuple[Tensor, ...]:
        always = [torch.full_like(p, num_blocks, dtype=torch.int32) for p in in_no_block]
        return needed_by_block(packed([*blocks.labels, *always]), num_blocks)

    return blocks.derived(("gradients", *map(id, in_no_block)), of_blocks)[optimizer.block]


def sum_before_steps(optimizer: BlockCyclic, ranks: Ranks) -> RemovableHandle:
    """From now on let every step of the optimizer begin by summing the gradients over the ranks.

    A closure computes its gradients inside the step, after the sum, so that a step with one is refused.
    """

    def hook(_optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if any(given is not None for given in (*args[1:], *kwargs.values())):
            raise InvalidArgumentError(
                "step was given a closure, whose gradients would come after they are summed over the ranks. "
                "Compute the gradients first, then call step() without it."
            )
        sum_gradients(optimizer, ranks)

    return optimizer.register_step_pre_hook(hook)


def active_block_hook(optimizer: BlockCyclic, bucket: GradBucket) -> Future[Tensor]:
    """Average over the ranks what the next step of ``optimizer`` needs of a bucket; the rest becomes zero.

    Register it by ``model.register_comm_hook(optimizer, active_block_hook)``. Under ``mask="update"`` the step needs
    everything. Without the hook the result is the same, at M times the traffic.
    """
    buffer: Tensor = bucket.buffer()
    if optimizer.mask == "update":
        whole: Future[Any] = dist.all_reduce(buffer.div_(dist.get_world_size()), async_op=True).get_future()
        return whole.then(lambda future: future.value()[0])
    active = active_in_bucket(optimizer, bucket)
    message = buffer.index_select(0, active).div_(dist.get_world_size())
    sent: Future[Any] = dist.all_reduce(message, async_op=True).get_future()
    return sent.then(lambda future: buffer.zero_().index_copy_(0, active, future.value()[0]))


def active_in_bucket(optimizer: BlockCyclic, bucket: GradBucket) -> Tensor:
    """Where in the buffer of a bucket the active block's gradient is."""
    blocks = optimizer.epoch_blocks()

    def of_blocks() -> tuple[Tensor, ...]:
        labels_of = dict(zip(map(id, blocks.parameters), blocks.labels, strict=True))
        buffer = bucket.buffer()
        labels = torch.zeros_like(buffer, dtype=torch.int32)
        always = torch.tensor(optimizer.num_blocks, device=buffer.device)
        for p, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            start = gradient.storage_offset() - buffer.storage_offset()
            labels.as_strided(gradient.shape, gradient.stride(), start).copy_(labels_of.get(id(p), always))
        return needed_by_block(labels, optimizer.num_blocks)

    return blocks.derived(("bucket", *map(id, bucket.parameters())), of_blocks)[optimizer.block]
