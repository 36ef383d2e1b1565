"""The transcribed tables against the LaTeX of the paper, both ways, where the paper is at hand."""

import csv
import os
import re
from importlib import resources
from pathlib import Path

import pytest

from bcsc.experiments.catalog import EXPERIMENTS, paper_numbers, plan_text
from bcsc.experiments.planning.plan_file import experiment_from_toml

FOLDER = Path(os.environ.get("BCSC_PAPER", Path(__file__).parents[4] / "shared" / "paper"))
FILES = sorted(FOLDER.glob("*.txt"))
PERIODS = ["first_half", "last_half", "all", "final"]
# file -> the label of its table in the LaTeX, and the arms in the order of a group of columns. In the header of the
# Cifar10 table the second group is misprinted as SGD, SGD, SBC; its columns are SGD, SBC, RBC as in the others.
BY_PERIOD = {
    "cifar10.csv": ("tab:accuracy_cifar10", ["AdaGrad", "AdaDelta", "SGD", "SBC M=8", "RBC M=8", "BCSC M=8"]),
    "cifar10-deep.csv": ("tab:accuracy_cifar10_deep", ["SGD", "BCSC M=8"]),
    "cifar100.csv": ("tab:accuracy_cifar100", ["SGD", "BCSC M=2"]),
}
# file -> the label, and what its columns of 0, 5, 10 and 15 % are
BY_RATE = {
    "outliers.csv": ("tab:accuracy_cifar10_outlier", "outliers"),
    "dropout.csv": ("tab:accuracy_mnist_dropout", "dropout"),
}

Key = tuple[str, str, str, str]


def latex_rows(label: str) -> list[list[str]]:
    """The cells of the rows of a table, without markup; headings are those without a decimal number."""
    source = FILES[0].read_text()
    end = source.index(rf"\label{{{label}}}")
    body = source[source.rindex(r"\begin{tabular}", 0, end) : end]
    rows = [re.sub(r"\\hline|\\bf|[{}$\s]", "", row).split("&") for row in body.split(r"\\")]
    return [row for row in rows if re.fullmatch(r"\d+\.\d+", row[-1])]


def from_latex(file: str) -> dict[Key, str]:
    """Every number of a table by model, condition, arm and period."""
    found = {}
    if file in BY_RATE:
        label, what = BY_RATE[file]
        for name, *values in latex_rows(label):
            arm = "SGD" if name.startswith("SGD") else f"BCSC {name[name.index('M=') : -1]}"
            for rate, value in zip((0, 5, 10, 15), values, strict=True):
                found["lenet4", f"{rate} % {what}" if rate else f"no {what}", arm, "all"] = value
    else:
        label, arms = BY_PERIOD[file]
        columns = [(arm, period) for period in PERIODS for arm in arms]
        for name, *values in latex_rows(label):
            for (arm, period), value in zip(columns, values, strict=True):
                found[name.lower(), "", arm, period] = value
    return found


def from_csv(file: str) -> dict[Key, str]:
    rows = list(csv.DictReader(resources.files("bcsc.experiments").joinpath("paper", file).read_text().splitlines()))
    found = {(row["model"], row["condition"], row["arm"], row["period"]): row["accuracy"] for row in rows}
    assert len(found) == len(rows), f"{file} has a number twice"
    return found


@pytest.mark.skipif(not FILES, reason=f"the paper is not in {FOLDER}; BCSC_PAPER names the folder of its LaTeX")
@pytest.mark.parametrize("file", [*BY_PERIOD, *BY_RATE])
def test_the_transcription_has_every_number_of_the_table_and_no_other(file: str) -> None:
    assert from_csv(file) == from_latex(file)


@pytest.mark.parametrize("file", [*BY_PERIOD, *BY_RATE])
def test_every_transcribed_number_belongs_to_a_cell_of_its_experiment(file: str) -> None:
    experiment = EXPERIMENTS[file.removesuffix(".csv")]
    assert sorted(paper_numbers(experiment).values()) == sorted(map(float, from_csv(file).values()))


def test_every_transcription_is_looked_at() -> None:
    files = {path.name for path in resources.files("bcsc.experiments").joinpath("paper").iterdir()}
    assert files == {*BY_PERIOD, *BY_RATE}


def test_a_plan_of_ones_own_has_no_numbers_of_the_paper() -> None:
    text = plan_text("cifar10")
    assert paper_numbers(experiment_from_toml(text, "cifar10", "a copy"))
    for name, own in [("mine", text), ("cifar10", text.replace('"cifar10"', '"cifar100"'))]:
        assert paper_numbers(experiment_from_toml(own, name, "mine.toml")) == {}


def test_older_plans_that_name_a_table_are_read_all_the_same() -> None:
    text = 'numbers = "cifar10.csv"\n' + plan_text("cifar10")
    assert experiment_from_toml(text, "cifar10", "an older plan") == EXPERIMENTS["cifar10"]
