"""The code in the documentation runs: Python blocks page by page, commands as far as the parser."""

import doctest
import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import bcsc
from bcsc.cli import parser
from bcsc.experiments.planning.plan_file import read_plan

ROOT = Path(__file__).parents[1]
PAGES = {path.relative_to(ROOT).as_posix(): path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TRIED_ELSEWHERE = {"docs/integrations.md"}  # it is that of the examples, see test_documentation


def blocks(language: str) -> dict[str, list[str]]:
    """The blocks of a language, by page."""
    found = {name: [m[2] for m in BLOCK.finditer(path.read_text()) if m[1] == language] for name, path in PAGES.items()}
    return {name: texts for name, texts in found.items() if texts}


class Network(nn.Module):
    """Classifies four numbers, and has an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.classifier = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.embedding(inputs))


def only_called_rightly(function: Any) -> Any:
    """In the place of a function that would train for hours."""

    def check(*arguments: Any, **options: Any) -> SimpleNamespace:
        inspect.signature(function).bind(*arguments, **options)
        return SimpleNamespace(verdicts=[])

    return check


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the pages take as given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bcsc, "run", only_called_rightly(bcsc.run), raising=False)
    monkeypatch.setattr(bcsc, "compare", only_called_rightly(bcsc.compare), raising=False)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dataset, model = TensorDataset(torch.randn(8, 4), torch.arange(8) % 3), Network()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = bcsc.BlockCyclicSampler(8, 4, 8)
    optimizer, loader = bcsc.BlockCyclic(base, 8), bcsc.BlockCyclicLoader(dataset, batches)
    saved = {"optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
    yield {
        **{"torch": torch, "nn": nn, "dist": dist, "bcsc": bcsc, "DataLoader": DataLoader},
        **{"DistributedDataParallel": DistributedDataParallel, "cross_entropy": cross_entropy},
        **{"RankSampler": bcsc.RankSampler, "active_block_hook": bcsc.active_block_hook},
        **{"model": model, "network": model, "base": base, "dataset": dataset, "loss_fn": cross_entropy},
        **{"train_set": dataset, "test_set": dataset, "batches": batches, "optimizer": optimizer, "loader": loader},
        **{"saved": saved, "indices": torch.arange(4), "orders": torch.arange(8).view(2, 4)},
    }
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(blocks("python").keys() - TRIED_ELSEWHERE))
@pytest.mark.filterwarnings("ignore::bcsc.errors.DriftWarning")  # fragments of loops
def test_the_python_of_a_page_runs(page: str, surroundings: dict[str, Any]) -> None:
    for code in blocks("python")[page]:
        exec(compile(code.replace('"cifar10"', '"digits"'), page, "exec"), surroundings)


@pytest.mark.parametrize("page", blocks("pycon"))
def test_a_session_gives_what_the_page_says(page: str) -> None:
    session = doctest.DocTestParser().get_doctest("\n".join(blocks("pycon")[page]), {}, page, page, 0)
    runner = doctest.DocTestRunner()
    runner.run(session)
    assert runner.summarize(verbose=False).failed == 0
    assert runner.tries > 10


COMMANDS = [
    (page, line)
    for page, texts in (blocks("") | blocks("bash")).items()
    for text in texts
    for line in text.replace("\\\n", " ").splitlines()
    if line.startswith("bcsc ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_a_command_of_a_page_is_one(page: str, line: str) -> None:
    assert parser().parse_args(shlex.split(line.partition(" > ")[0], comments=True)[1:]).run


def test_there_are_commands_and_the_plan_of_a_page_is_one(tmp_path: Path) -> None:
    assert len(COMMANDS) > 15
    (tmp_path / "mine.toml").write_text(blocks("toml")["docs/plans.md"][0])
    assert read_plan(tmp_path / "mine.toml")
