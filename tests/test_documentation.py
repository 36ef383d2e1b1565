"""The documentation speaks of what is there."""

import doctest
import importlib
import json
import re
from pathlib import Path
from statistics import fmean

import pytest
import torch

from bcsc.experiments.catalog import EXPERIMENTS, paper_numbers
from bcsc.optim import block_cyclic
from bcsc.reports.judging.cases import Case

ROOT = Path(__file__).parents[1]
MAPPED = re.findall(r"`bcsc/([\w/]+)\.py::(\w+)`", (ROOT / "docs" / "paper-map.md").read_text())
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize(("module", "symbol"), MAPPED)
def test_every_symbol_in_the_paper_map_exists(module: str, symbol: str) -> None:
    name = f"bcsc.{module.replace('/', '.')}".removesuffix(".__init__")
    assert hasattr(importlib.import_module(name), symbol)


def test_every_test_in_the_paper_map_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "paper-map.md").read_text())
    assert len(named) == len(MAPPED) > 10
    assert all((ROOT / name).exists() for name in named)


def test_the_example_in_the_docstring_runs() -> None:
    results = doctest.testmod(block_cyclic, extraglobs={"torch": torch})
    assert results.attempted > 3
    assert results.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())
    assert all((page.parent / link).exists() for link in links)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """In words of its own, as the site itself takes a while to build."""
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 20
    lost = [str(page) for page in pages if page.as_posix() not in nav and f"{page.parent.as_posix()}/*" not in nav]
    assert lost == [], "put them into nav in mkdocs.yml"


MADE = ("results.md", "performance.md")  # from records, by a command


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in MADE], ids=lambda page: page.name)
def test_prose_is_wrapped_at_a_hundred_columns(page: Path) -> None:
    without_code = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    prose = [line for line in without_code.splitlines() if not line.startswith(("|", "!["))]
    assert [line for line in prose if len(line) > 100 and not re.fullmatch(r"\S+|\[[^]]*\]\S+", line.strip())] == []


def without_indentation(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_the_code_for_other_trainers_is_that_of_the_examples_or_of_the_tests() -> None:
    sources = [*(ROOT / "examples").glob("*.py"), *(ROOT / "tests" / "integrations").glob("*.py")]
    tried = [without_indentation(path.read_text()) for path in sources]
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "integrations.md").read_text(), re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        assert any(without_indentation(block) in text for text in tried), block


def final_accuracies(record: str, num_runs: int, period: str = "final") -> dict[str, float]:
    """Of every run of a record, none of which may get lost."""
    summaries = (ROOT / "records" / record).glob("*/summary.json")
    final = {path.parent.name: json.loads(path.read_text())["test_accuracy"][period] for path in summaries}
    assert len(final) == num_runs
    return final


def test_the_table_on_the_block_parallel_mode_is_that_of_its_records() -> None:
    text, final = (ROOT / "docs" / "distributed.md").read_text(), final_accuracies("mnist-block-parallel", 36)
    for experiment in {name.rpartition("-")[0] for name in final}:
        names = [f"{experiment}-{seed}" for seed in range(3)]
        numbers = [f"[{final[name]:.2f}](../records/mnist-block-parallel/{name})" for name in names]
        assert f"| {', '.join(numbers)} | {fmean(final[name] for name in names):.2f} |" in text


def test_what_is_said_of_the_block_parallel_mode_on_cifar10_is_that_of_its_records() -> None:
    text, final = (ROOT / "docs" / "distributed.md").read_text(), final_accuracies("cifar10-block-parallel", 9)
    every = final_accuracies("cifar10-block-parallel", 9, "all")
    for arm in ("sequential", "w-2", "w-4"):
        names = [f"{arm}-{seed}" for seed in range(3)]
        numbers = ", ".join(f"[{final[name]:.2f}](../records/cifar10-block-parallel/{name})" for name in names)
        means = [fmean(each[name] for name in names) for each in (final, every)]
        assert f"| {numbers} | {means[0]:.2f} | {means[1]:.2f} |" in text
    words = " ".join(text.split())
    for accuracies in (final, every):
        changes = [
            Case("", tuple(accuracies[f"{arm}-{seed}"] - accuracies[f"sequential-{seed}"] for seed in range(3)), "")
            for arm in ("w-2", "w-4")
        ]
        said = [f"{fmean(case.values):+.2f} ± {case.margin:.2f}" for case in changes]
        assert said[0] in words
        assert said[1] in words


def test_the_first_look_at_deep_networks_is_that_of_its_records() -> None:
    text = (ROOT / "docs" / "models.md").read_text().partition("## Do they train?")[2]
    linked = re.findall(r"\[([\d.]+), ([\d.]+)\]\(\.\./records/deep-networks/([\w-]+)\)", text)
    recorded = {path.parent.name for path in (ROOT / "records" / "deep-networks").glob("*/metrics.jsonl")}
    assert {name.rpartition("-")[0] for *_, name in linked} >= {"shufflenet", "senet18", "denseconv"}
    assert {name for *_, name in linked} == recorded
    rising = set()
    for first, second, name in linked:
        lines = (ROOT / "records" / "deep-networks" / name / "metrics.jsonl").read_text().splitlines()
        losses = [json.loads(line)["train_loss"] for line in lines]
        assert [first, second] == [f"{loss:.2f}" for loss in losses]
        rising |= {name} if losses[1] >= losses[0] else set()
    assert rising == {"shufflenet-sgd", "dpn92-sgd"}


def test_what_is_said_of_sbc_in_one_pass_is_that_of_its_record() -> None:
    run = ROOT / "records" / "sbc-200-epochs" / "sbc-one-pass-m-8-seed-0"
    ours = json.loads((run / "summary.json").read_text())["test_accuracy"]
    numbers = paper_numbers(EXPERIMENTS["cifar10"])
    paper = {p: value for (cell, p), value in numbers.items() if (cell.model, cell.arm) == ("lenet4", "SBC M=8")}
    assert set(paper) == {"first_half", "last_half", "all", "final"}
    assert all(1.5 < ours[period] - value < 2.5 for period, value in paper.items())


def test_the_two_rows_of_sgd_that_the_paper_has_are_as_far_apart_as_is_said() -> None:
    found = [
        value
        for name, condition in (("cifar10", ""), ("outliers", "no outliers"))
        for (cell, period), value in paper_numbers(EXPERIMENTS[name]).items()
        if (cell.model, cell.condition, cell.arm, period) == ("lenet4", condition, "SGD", "all")
    ]
    said = f"are {found[0] - found[1]:.2f} points apart ({found[0]} and {found[1]})"
    assert said in " ".join((ROOT / "docs" / "results.md").read_text().split())
