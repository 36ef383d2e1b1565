"""On a graphics card: what the CPU gives, to rounding, and no step or exchange that waits. Runs where there is one."""

import pytest
import torch
from torch import nn

import bcsc
from bcsc.choices import MASKS
from bcsc.distributed.block_gradients import sum_gradients
from bcsc.distributed.collectives import Ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a graphics card")
BASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, foreach=True),
}


def trained(device: str, mask: str, base: str) -> list[torch.Tensor]:
    """Parameters after some steps of an epoch, of which only the first may wait for the device."""
    parameters = [nn.Parameter(torch.linspace(-1, 1, n, device=device)) for n in (1000, 50, 300)]
    optimizer = bcsc.BlockCyclic(BASES[base](parameters), 4, mask=mask)
    for step in range(6):
        for p in parameters:
            p.grad = torch.linspace(step, -1, len(p), device=device)
        try:
            if device == "cuda" and step > 1:
                torch.cuda.set_sync_debug_mode("error")
            sum_gradients(optimizer, Ranks())
            optimizer.step()
        finally:
            if device == "cuda":
                torch.cuda.set_sync_debug_mode("default")
    return [p.detach().cpu() for p in parameters]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("base", BASES)
def test_it_moves_as_on_the_cpu_and_waits_for_nothing(mask: str, base: str) -> None:
    for there, here in zip(trained("cuda", mask, base), trained("cpu", mask, base), strict=True):
        assert torch.allclose(there, here, rtol=1e-5, atol=1e-6)
