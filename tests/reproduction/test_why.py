"""docs/why.md: the weight with which a gradient enters under BCSC, by the formulas of that page."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from bcsc import BlockCyclic
from bcsc.choices import Mask

ROOT = Path(__file__).resolve().parents[2]
MOMENTUM, RATE = 0.9, 0.1


def weights_of_one_gradient(num_blocks: int, mask: Mask = "update") -> torch.Tensor:
    """How far each scalar has gone in the end, per unit of one gradient, which came with block 0's second turn."""
    parameter = nn.Parameter(torch.zeros(num_blocks * 5, dtype=torch.float64))
    base = torch.optim.SGD([parameter], lr=RATE, momentum=MOMENTUM)
    optimizer = BlockCyclic(base, num_blocks, mask=mask)
    for step in range(200 * num_blocks):
        parameter.grad = torch.full_like(parameter, float(step == num_blocks))
        optimizer.step()
    (labels,) = optimizer.epoch_blocks().labels
    return torch.stack([-parameter.detach()[labels == block].mean() for block in range(num_blocks)])


@pytest.mark.parametrize("num_blocks", [1, 2, 4, 8])
def test_a_gradient_enters_a_block_by_how_long_it_waits_for_its_turn(num_blocks: int) -> None:
    entered = weights_of_one_gradient(num_blocks)
    waits = torch.arange(num_blocks, dtype=torch.float64)
    torch.testing.assert_close(entered, RATE * MOMENTUM**waits / (1 - MOMENTUM**num_blocks))


@pytest.mark.parametrize("num_blocks", [1, 2, 4, 8])
def test_in_the_mean_over_the_blocks_it_enters_as_under_sgd_at_an_mth_of_the_rate(num_blocks: int) -> None:
    entered = weights_of_one_gradient(num_blocks)
    torch.testing.assert_close(entered.mean().item(), RATE / num_blocks / (1 - MOMENTUM))
    spread = entered.square().mean() / entered.mean().square()
    after_m = MOMENTUM**num_blocks
    expected = num_blocks * (1 - MOMENTUM) * (1 + after_m) / ((1 + MOMENTUM) * (1 - after_m))
    torch.testing.assert_close(spread.item(), expected)


@pytest.mark.parametrize("num_blocks", [1, 2, 4, 8])
@pytest.mark.parametrize("mask", ["gradient", "all"])
def test_under_the_other_masks_the_mean_is_the_same_and_one_block_has_all_of_it(mask: Mask, num_blocks: int) -> None:
    entered = weights_of_one_gradient(num_blocks, mask)
    torch.testing.assert_close(entered.mean().item(), RATE / num_blocks / (1 - MOMENTUM))
    torch.testing.assert_close((entered.square().mean() / entered.mean().square()).item(), float(num_blocks))


def test_the_table_of_distances_is_that_of_its_record() -> None:
    folder = ROOT / "records" / "trajectories"
    spec = importlib.util.spec_from_file_location("measure", folder / "measure.py")
    assert spec is not None
    assert spec.loader is not None
    measure = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measure)
    record = json.loads((folder / "distances.json").read_text())
    assert len(record["rows"]) == 6
    page = (ROOT / "docs" / "why.md").read_text()
    assert measure.table(record) in page
    places = [
        mine < other
        for row in record["rows"]
        for mine, other in zip(row["distance"]["BCSC"], row["distance"]["SGD, other shuffles"], strict=True)
    ]
    assert f"In {sum(places)} of {len(places)} places BCSC is nearer" in page
    ends = {row["M"]: row["distance"]["BCSC"][-1] for row in record["rows"] if row["eta"] == 0.1}
    assert f"the two are {ends[8]:.2f} (M = 8) and {ends[2]:.2f} (M = 2) of SGD's way apart" in " ".join(page.split())
