"""Tables show the mean and spread over seeds, the paper's number and the difference, and what was cut."""

import csv
from pathlib import Path

import pytest

from bcsc.experiments.catalog import Cell
from bcsc.experiments.study import Study, read_studies
from bcsc.reports.tables import COST_OF_AN_EPOCH, Entry, entries_of, table_of, to_csv, to_latex, to_markdown
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run, write_study

CELL = Cell("lenet4", "", "SGD")


def by_seed(spec: RunSpec, _epoch: int) -> float:
    """The same accuracy in every epoch: 60, 62, 64 for seeds 0, 1, 2."""
    return 60.0 + 2.0 * spec.seed


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (study,), _ = read_studies(write_study(tmp_path, "cifar10", accuracy=by_seed, epochs=2, models=["lenet4"]))
    return study


def test_an_entry_is_the_mean_the_spread_and_the_difference_to_the_paper() -> None:
    entry = Entry(CELL, "all", (60.0, 62.0, 64.0), 58.66)
    assert (entry.mean, entry.spread) == (62.0, 2.0)
    assert entry.difference == pytest.approx(3.34)
    assert entry.ours == "62.00 ± 2.00"


def test_one_seed_has_no_spread_and_no_run_has_nothing() -> None:
    assert Entry(CELL, "all", (60.0,), None).ours == "60.00"
    nothing = Entry(CELL, "all", (), 58.66)
    assert (nothing.ours, nothing.mean, nothing.difference) == ("-", None, None)


def test_every_period_of_every_cell_has_an_entry(study: Study) -> None:
    entries = entries_of(study)
    assert len(entries) == 6 * 4
    assert {entry.values for entry in entries} == {(60.0, 62.0, 64.0)}
    assert next(entry.paper for entry in entries if entry.cell == CELL and entry.period == "final") == 73.24


def test_markdown_has_ours_the_papers_and_the_difference(study: Study) -> None:
    text = to_markdown(table_of(study))
    assert "| Network | Method | Seeds | First half: ours | First half: paper | First half: diff |" in text
    assert "| LeNet4 | SGD | 3 | 62.00 ± 2.00 | 46.98 | +15.02 |" in text
    assert "*cut down: 2 of 200 epochs, 1 of 3 networks*" in text
    assert COST_OF_AN_EPOCH in text


def test_latex_is_a_booktabs_table_with_as_many_cells_in_each_row(study: Study) -> None:
    text = to_latex(table_of(study))
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 6
    assert {line.count("&") for line in rows} == {3 + 4 * 3 - 1}
    assert r"62.00 $\pm$ 2.00 & 46.98 & +15.02" in text
    assert r"\cmidrule(lr){4-6}\cmidrule(lr){7-9}" in text
    assert r"test accuracy (\%). cut down: 2 of 200 epochs" in text


def test_csv_keeps_every_digit_and_the_caveat(study: Study) -> None:
    rows = list(csv.DictReader(to_csv(study).splitlines()))
    row = next(row for row in rows if row["arm"] == "SGD" and row["period"] == "all")
    assert float(row["difference"]) == 62.0 - 58.66
    assert row["values"] == "60.0 62.0 64.0"
    assert {row["caveat"] for row in rows} == {"cut down: 2 of 200 epochs, 1 of 3 networks"}


def test_periods_without_a_number_in_the_paper_have_no_columns_for_it(tmp_path: Path) -> None:
    (study,), _ = read_studies(write_study(tmp_path, "outliers", epochs=2, seeds=[0], blocks=[2]))
    table = table_of(study)
    assert table.columns == (
        *("Network", "Condition", "Method", "Seeds"),
        *("ours", "ours", "ours", "paper", "diff", "ours"),
    )
    assert sum(width for _, width in table.groups) == len(table.columns)


def test_diverged_runs_are_counted_and_enter_no_mean(tmp_path: Path) -> None:
    write_run(tmp_path / "a", RunSpec(epochs=2), accuracy=by_seed)
    write_run(tmp_path / "b", RunSpec(epochs=2, seed=1), state="diverged", epochs_done=1)
    (study,), _ = read_studies(tmp_path)
    assert table_of(study).rows[0][3:5] == ("1, 1 diverged", "60.00")
