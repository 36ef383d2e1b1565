"""Many tensors, or the masked scalars of each, as one flat buffer and back: one message instead of many."""

from collections.abc import Sequence

import torch
from torch import Tensor


def packed(tensors: Sequence[Tensor], masks: Sequence[Tensor] | None = None) -> Tensor:
    """The tensors' scalars one after the other; with masks, which broadcast, those that are true only."""
    if masks is None:
        return torch.cat([tensor.flatten() for tensor in tensors])
    return torch.cat([tensor.masked_select(mask) for tensor, mask in zip(tensors, masks, strict=True)])


def unpack_(flat: Tensor, tensors: Sequence[Tensor], masks: Sequence[Tensor] | None = None) -> None:
    """Put the scalars of a packed buffer where they came from."""
    start = 0
    for i, tensor in enumerate(tensors):
        if masks is None:
            tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()
        else:
            mask = masks[i].expand_as(tensor)
            tensor.masked_scatter_(mask, flat[start:].to(tensor.dtype))
            start += int(mask.sum())
