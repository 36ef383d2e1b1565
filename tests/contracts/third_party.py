"""All optimizers of pytorch_optimizer as bases, and the page on them: ``python -m tests.contracts.third_party``."""

import re
import textwrap
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytorch_optimizer as po
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

import bcsc
from bcsc.choices import MASKS
from bcsc.errors import UnsupportedOptimizerError
from bcsc.optim.bases.refusals import REFUSED
from tests.contracts.laws import check_blocks, check_continued, check_one_block

PAGE = Path(__file__).parents[2] / "docs" / "bases.md"
SHAPES = [(4, 3), (5,)]


def starting_parameters(*shapes: tuple[int, ...]) -> list[Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [Parameter(torch.randn(shape, generator=generator)) for shape in shapes or SHAPES]


def matrices_and_the_rest() -> list[dict]:
    """The groups that Muon and its kind ask for."""
    matrix, vector = starting_parameters()
    return [{"params": [matrix], "use_muon": True}, {"params": [vector], "use_muon": False}]


def in_a_process_group(optimizer: type[Optimizer]) -> Optimizer:
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return optimizer(matrices_and_the_rest() if optimizer is po.DistributedMuon else starting_parameters())


def around_sgd(wrapper: type[Optimizer]) -> Optimizer:
    return wrapper(SGD(starting_parameters(), lr=0.1, momentum=0.9))


def around_a_class(wrapper: type[Optimizer]) -> Optimizer:
    return wrapper(starting_parameters(), base_optimizer=SGD, lr=0.1)


def with_a_model(optimizer: type[Optimizer]) -> Optimizer:
    model = nn.Linear(3, 4)
    return optimizer(model) if optimizer is not po.WSAM else po.WSAM(model, model.parameters(), base_optimizer=SGD)


AROUND_AN_OPTIMIZER = ("Lookahead", "OrthoGrad", "PCGrad", "SafeFP16Optimizer", "ScheduleFreeWrapper", "TRAC")
AROUND_A_CLASS = ("FriendlySAM", "LookSAM", "SAM")
WRAPPERS = (*AROUND_AN_OPTIMIZER, *AROUND_A_CLASS, "WSAM")
SPECIAL: dict[str, Callable[[type[Optimizer]], Optimizer]] = {
    **dict.fromkeys(("AdaGO", "AdaMuon", "Muon", "MuonClip", "NorMuon"), lambda kind: kind(matrices_and_the_rest())),
    **dict.fromkeys(("AdaLOMO", "AdamMini", "LOMO", "WSAM"), with_a_model),
    **dict.fromkeys(("DeMo", "DistributedMuon"), in_a_process_group),
    **dict.fromkeys(AROUND_AN_OPTIMIZER, around_sgd),
    **dict.fromkeys(AROUND_A_CLASS, around_a_class),
    **dict.fromkeys(("LoRARite", "SpectralSphere"), lambda kind: kind(starting_parameters((3, 4), (5, 3)))),
    "BSAM": lambda kind: kind(starting_parameters(), num_data=100),
    "Ranger21": lambda kind: kind(starting_parameters(), num_iterations=100),
}


def all_optimizers() -> dict[str, type[Optimizer]]:
    """Everything that pytorch_optimizer has, its own and torch's under its names, and what wraps another."""
    listed = [po.load_optimizer(name) for name in po.get_supported_optimizers()]
    wrapping = [getattr(po, name) for name in WRAPPERS]
    return {kind.__name__: kind for kind in sorted({*listed, *wrapping}, key=lambda kind: kind.__name__.lower())}


def build(name: str) -> Optimizer:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer = SPECIAL.get(name, lambda kind: kind(starting_parameters()))(all_optimizers()[name])
    getattr(optimizer, "train", lambda: None)()  # schedule-free optimizers step in that mode only
    return optimizer


def outcome(name: str, mask: str) -> str:
    """``"right"`` where every step does what the mask says, or why the base is refused."""

    def in_blocks() -> bcsc.BlockCyclic:
        return bcsc.BlockCyclic(build(name), num_blocks=3, mask=mask, steps_per_epoch=4)

    try:
        optimizer = in_blocks()
    except UnsupportedOptimizerError as error:
        start, _, reason = str(error).partition(f" {REFUSED}: ")
        assert start == name
        return reason
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_one_block(build(name), bcsc.BlockCyclic(build(name), num_blocks=1, mask=mask), num_steps=3)
        check_blocks(optimizer, num_steps=6)
        check_continued(in_blocks, num_steps=3)
    return "right"


def is_refused_rescaled(name: str) -> bool:
    """Whether a base goes with ``mask="update"``, but not M times as far."""
    bcsc.BlockCyclic(build(name), num_blocks=3)
    try:
        bcsc.BlockCyclic(build(name), num_blocks=3, rescale=True)
    except UnsupportedOptimizerError as error:
        return "its steps lead to places of its own" in str(error)
    return False


ABOUT = """Which of the {count} optimizers of
[pytorch_optimizer](https://pypi.org/project/pytorch_optimizer/) {version} can be the base of
`BlockCyclic`. *Right* says: with one block it steps as the bare optimizer, to the bit; with three
blocks every step does what the mask says, compared with a bare step from the same point, and leaves
the gradients as they were; and what has loaded a saved state goes on as if it had never stopped, to
the bit. Everything else is refused when the optimizer is built, by name and for
the reason given here."""
START = """# Optimizers of pytorch_optimizer

{about}

This page is written by `python -m tests.contracts.third_party`, and a test tries every optimizer.

## Refused, or right under some masks only ({others})

| optimizer | right under | otherwise refused, as |
| --- | --- | --- |
"""
LIST = "## Right under every mask"
NOT_RESCALED = "## Refused with `rescale=True`"
WHY_NOT = """Their steps lead to places of their own, wherever the parameters were; moves that are M
times as long would lead beyond them."""


def found_out(name: str) -> tuple[str, str]:
    """The masks under which an optimizer is right, and why it is refused under the others."""
    outcomes = {mask: outcome(name, mask) for mask in MASKS}
    right = [mask for mask in MASKS if outcomes[mask] == "right"]
    (reason,) = {outcomes[mask] for mask in MASKS if mask not in right} or {""}
    return ", ".join(right) or "none", reason


def read_page() -> dict[str, tuple[str, str]]:
    """What the page says of every optimizer."""
    table, _, rest = PAGE.read_text().partition(NOT_RESCALED)[0].partition(LIST)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:3] == "| `"]
    everywhere = dict.fromkeys(re.findall(r"`(\w+)`", rest), (", ".join(MASKS), ""))
    return {**{name.strip("`"): (right, reason) for name, right, reason in rows}, **everywhere}


def read_not_rescaled() -> set[str]:
    """Those that the page says are refused with ``rescale=True``."""
    return set(re.findall(r"`(\w+)`", PAGE.read_text().partition(NOT_RESCALED)[2]))


def wrapped(text: str) -> str:
    return textwrap.fill(text, width=100, break_long_words=False, break_on_hyphens=False)


def write_page() -> None:
    """Try every optimizer under every mask, and say what came out."""
    found = {name: found_out(name) for name in all_optimizers()}
    right = [name for name, (_, reason) in found.items() if not reason]
    about = ABOUT.format(count=len(found), version=version("pytorch_optimizer"))
    text = START.format(about=wrapped(about), others=len(found) - len(right))
    for name, (masks, reason) in found.items():
        text += f"| `{name}` | {masks} | {reason} |\n" if reason else ""
    not_rescaled = [name for name, (masks, _) in found.items() if "update" in masks and is_refused_rescaled(name)]
    text += f"\n{LIST} ({len(right)})\n\n{in_words(right)}\n"
    text += f"\n{NOT_RESCALED} ({len(not_rescaled)})\n\n{wrapped(WHY_NOT)}\n\n{in_words(not_rescaled)}\n"
    PAGE.write_text(text)


def in_words(names: list[str]) -> str:
    return wrapped(", ".join(f"`{name}`" for name in names) + ".")


if __name__ == "__main__":
    write_page()
