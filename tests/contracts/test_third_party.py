"""Every optimizer of pytorch_optimizer does what the mask says, or is refused as docs/bases.md says."""

from collections.abc import Iterator

import pytest
import torch.distributed as dist

pytest.importorskip("pytorch_optimizer")

from bcsc.choices import MASKS
from tests.contracts.third_party import (
    PAGE,
    all_optimizers,
    found_out,
    is_refused_rescaled,
    read_not_rescaled,
    read_page,
)

SAID, NOT_RESCALED = read_page(), read_not_rescaled()


def test_the_page_has_all_of_them() -> None:
    assert SAID.keys() == all_optimizers().keys()
    assert len(SAID) > 130
    assert {"FTRL", "MADGRAD"} <= NOT_RESCALED <= SAID.keys()
    assert sum("gradient" in masks for masks, _ in SAID.values()) > 120


def test_the_page_on_the_optimizer_counts_them() -> None:
    right = {mask: sum(mask in masks for masks, _ in SAID.values()) for mask in MASKS}
    everywhere = sum(all(mask in masks for mask in MASKS) for masks, _ in SAID.values())
    page = " ".join((PAGE.parent / "optimizer.md").read_text().split())
    assert f"Of the {len(SAID)} optimizers of pytorch_optimizer 4.1, {everywhere} are right under every mask" in page
    assert f'{right["update"]} under `"update"` and {right["gradient"]} under `"gradient"`' in page


@pytest.fixture
def alone() -> Iterator[None]:
    """Leave no process group behind, which some optimizers need."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("name", SAID)
@pytest.mark.usefixtures("alone")
def test_what_the_page_says_is_so(name: str) -> None:
    assert found_out(name) == SAID[name]
    assert ("update" in SAID[name][0] and is_refused_rescaled(name)) == (name in NOT_RESCALED)
