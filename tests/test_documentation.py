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
from bcsc.reports.claims import Case
from bcsc.runs.spec import spec_from_toml

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


def test_the_snippet_of_the_readme_is_the_quickstart() -> None:
    readme, quickstart = (ROOT / "README.md").read_text(), (ROOT / "examples" / "quickstart.py").read_text()
    for line in (
        "base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)",
        "optimizer = bcsc.BlockCyclic(base, num_blocks=8, seed=0)",
        "batches = bcsc.BlockCyclicSampler(len(dataset), batch_size=128, num_blocks=8, seed=0)",
        "loader = DataLoader(dataset, batch_sampler=batches)",
    ):
        assert line in readme
        assert line in quickstart


def final_accuracies(record: str, num_runs: int) -> dict[str, float]:
    """Of every run of a record, none of which may get lost."""
    summaries = (ROOT / "records" / record).glob("*/summary.json")
    final = {path.parent.name: json.loads(path.read_text())["test_accuracy"]["final"] for path in summaries}
    assert len(final) == num_runs
    return final


README_ROWS = {
    "SGD, 10 epochs": "cifar10-10-epochs/runs/lenet4-sgd-seed-{}",
    "RBC M = 8, 10 epochs": "cifar10-10-epochs/runs/lenet4-rbc-m-8-seed-{}",
    "SBC M = 8, 10 epochs": "cifar10-10-epochs/runs/lenet4-sbc-m-8-seed-{}",
    "BCSC M = 8, 10 epochs": "cifar10-10-epochs/runs/lenet4-bcsc-m-8-seed-{}",
    "SGD, 80 epochs": "compute-10-epochs/runs/lenet4-clean-sgd-rate-8-8x-epochs-seed-{}",
    "SGD, 200 epochs": "cifar10-200-epochs/runs/lenet4-sgd-seed-{}",
    "BCSC M = 8, 200 epochs": "cifar10-200-epochs/runs/lenet4-bcsc-m-8-seed-{}",
}


@pytest.mark.parametrize("row", README_ROWS)
def test_the_table_of_the_readme_is_that_of_its_records_and_links_to_them(row: str) -> None:
    num_seeds = 1 if "200 epochs" in row else 3
    folders = {seed: f"records/{README_ROWS[row].format(seed)}" for seed in range(num_seeds)}
    summaries = [json.loads((ROOT / folder / "summary.json").read_text()) for folder in folders.values()]
    means = [fmean(summary["test_accuracy"][period] for summary in summaries) for period in ("all", "final")]
    passes = summaries[0]["gradient_evaluations"] // 50_000
    (rate,) = {spec_from_toml((ROOT / each / "run.toml").read_text(), each).learning_rate for each in folders.values()}
    links = " ".join(f"[{seed}]({folder})" for seed, folder in folders.items())
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {row} |"))
    assert line.split(" | ")[1:] == [f"{rate:g}", f"{passes:,}", *(f"{mean:.2f}" for mean in means), f"{links} |"]


def test_what_wrong_labels_cost_is_what_the_records_say() -> None:
    lost = {}
    for arm in ("sgd", "bcsc-m-8"):
        by_condition = []
        for condition in ("no-outliers", "15-outliers"):
            folders = [f"outliers-10-epochs/runs/lenet4-{condition}-{arm}-seed-{seed}" for seed in range(3)]
            summaries = [json.loads((ROOT / "records" / each / "summary.json").read_text()) for each in folders]
            by_condition.append([summary["test_accuracy"]["all"] for summary in summaries])
        values = [clean - wrong for clean, wrong in zip(*by_condition, strict=True)]
        lost[arm] = f"{fmean(values):.2f} ± {Case('', tuple(values), '').margin:.2f}"
    sentence = f"SGD loses {lost['sgd']} points over all epochs and BCSC {lost['bcsc-m-8']} "
    assert sentence in " ".join((ROOT / "README.md").read_text().split())


def test_what_is_left_when_both_are_tuned_is_what_the_records_say() -> None:
    found = []
    for condition in ("clean", "15-wrong-labels"):
        for arm in ("sgd", "bcsc-m-8", "sbc-m-8", "rbc-m-8"):
            runs = list((ROOT / "records" / "tuned-equal-compute" / "runs").glob(f"lenet4-{condition}-{arm}-seed-*"))
            summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
            evaluations = [summary["gradient_evaluations"] for summary in summaries]
            assert evaluations == pytest.approx([40 * 50_000] * 3, rel=1e-3)  # all batches of SBC are full ones
            found.append(f"{fmean(summary['test_accuracy']['final'] for summary in summaries):.2f} %")
    sentence = (
        f"at 40 passes: SGD {found[0]}, BCSC M = 8 {found[1]}, SBC {found[2]} and RBC {found[3]} in the end, three "
        f"seeds; with 15 % wrong labels {found[4]}, {found[5]}, {found[6]} and {found[7]}"
    )
    assert sentence in " ".join((ROOT / "README.md").read_text().split())


def test_where_bcsc_ends_beside_the_other_block_methods_is_what_the_records_say() -> None:
    final = final_accuracies("tuned-equal-compute/runs", 24)

    def gain(condition: str, other: str) -> Case:
        arms = [[final[f"lenet4-{condition}-{arm}-m-8-seed-{seed}"] for seed in range(3)] for arm in ("bcsc", other)]
        return Case("", tuple(ours - theirs for ours, theirs in zip(*arms, strict=True)), "")

    clean, noisy = [
        f"{fmean(g.values):.2f} ± {g.margin:.2f}" for g in map(gain, ("clean", "15-wrong-labels"), ["rbc"] * 2)
    ]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"RBC ends below BCSC: by {clean} points, and with wrong labels by {noisy}, where the smallest rate" in text
    assert "Between BCSC and SBC the clean runs do not decide." in text
    assert gain("clean", "sbc").state == "not decided"


def test_what_is_left_inside_adagrad_is_what_the_records_say() -> None:
    final = final_accuracies("adagrad-10-epochs/runs", 6)
    bcsc, sgd = (fmean(final[f"lenet4-adagrad-{arm}-seed-{seed}"] for seed in range(3)) for arm in ("bcsc-m-8", "sgd"))
    sentence = f"LeNet4 ends at {bcsc:.2f} % with BCSC M = 8 and at {sgd:.2f} % with SGD, ten epochs, three seeds"
    assert sentence in " ".join((ROOT / "README.md").read_text().split())


def test_what_networks_with_batch_norm_end_at_is_what_the_records_say() -> None:
    final = final_accuracies("batch-norm/runs", 5)
    bcsc, sgd = (final[f"mobilenet-{arm}-seed-0"] for arm in ("bcsc-m-2", "sgd-rate-2-2x-epochs"))
    sentence = f"ends at {bcsc:.2f} % with BCSC M = 2 in ten epochs and at {sgd:.2f} % with SGD at half the rate in"
    assert sentence in " ".join((ROOT / "README.md").read_text().split())
    bcsc, sgd = (final[f"vgg19-{arm}-seed-0"] for arm in ("bcsc-m-2", "sgd"))
    sentence = (
        f"VGG19 hardly learns at that size: {bcsc:.2f} % with BCSC M = 2 and {sgd:.2f} % with SGD, where guessing"
    )
    assert sentence in " ".join((ROOT / "README.md").read_text().split())


def test_the_table_on_the_block_parallel_mode_is_that_of_its_records() -> None:
    text, final = (ROOT / "docs" / "distributed.md").read_text(), final_accuracies("mnist-block-parallel", 36)
    for experiment in {name.rpartition("-")[0] for name in final}:
        names = [f"{experiment}-{seed}" for seed in range(3)]
        numbers = [f"[{final[name]:.2f}](../records/mnist-block-parallel/{name})" for name in names]
        assert f"| {', '.join(numbers)} | {fmean(final[name] for name in names):.2f} |" in text


def test_at_full_length_the_rows_are_as_near_to_the_papers_as_the_readme_says() -> None:
    row = {"sgd": "SGD", "bcsc-m-8": "BCSC M=8"}
    paper = {
        (cell.arm, period): value
        for (cell, period), value in paper_numbers(EXPERIMENTS["cifar10"]).items()
        if cell.model == "lenet4"
    }
    for arm, most in (("sgd", 2), ("bcsc-m-8", 1)):
        folder = ROOT / "records" / "cifar10-200-epochs" / "runs" / f"lenet4-{arm}-seed-0"
        ours = json.loads((folder / "summary.json").read_text())["test_accuracy"]
        periods = ("first_half", "last_half", "all", "final")
        assert all(abs(ours[period] - paper[row[arm], period]) < most for period in periods)
    assert "SGD comes within two points of the paper's row and BCSC within one" in (ROOT / "README.md").read_text()
