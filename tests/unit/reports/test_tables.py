"""Tables show the mean and spread over seeds, the paper's number and the difference, and what was cut."""

import csv
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.experiments.experiment import Cell
from bcsc.experiments.study import Study, read_studies
from bcsc.reports.tables import (
    AVERAGES_OF_OWN_EPOCHS,
    COST_OF_AN_EPOCH,
    Column,
    Score,
    Table,
    entries_of,
    markdown_rows,
    sentence,
    table_of,
    to_csv,
    to_latex,
    to_markdown,
)
from bcsc.runs.spec import RunSpec
from tests.run_folders import study_in_memory, write_run, write_study

CELL = Cell("lenet4", "", "SGD")
PDFLATEX = shutil.which("pdflatex")


def by_seed(spec: RunSpec, _epoch: int) -> float:
    """The same accuracy in every epoch: 60, 62, 64 for seeds 0, 1, 2."""
    return 60.0 + 2.0 * spec.seed


@pytest.fixture
def study(tmp_path: Path) -> Study:
    (study,), _ = read_studies(write_study(tmp_path, "cifar10", accuracy=by_seed, epochs=2, models=["lenet4"]))
    return study


def small_table(*cells: str) -> Table:
    return Table("Title", (), (Column("Method", "word", cells), Column("ours", "ours", ("1.00",) * len(cells), "All")))


def latex_cells(text: str) -> list[list[str]]:
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in body.splitlines() if line.endswith(r"\\")]


def test_an_entry_is_the_mean_the_spread_and_the_difference_to_the_paper() -> None:
    entry = Score(CELL, "all", (60.0, 62.0, 64.0), 58.66)
    assert (entry.mean, entry.spread) == (62.0, 2.0)
    assert entry.difference == pytest.approx(3.34)
    assert entry.ours == "62.00 ± 2.00"


def test_one_seed_has_no_spread_and_no_run_has_nothing() -> None:
    assert Score(CELL, "all", (60.0,), None).ours == "60.00"
    nothing = Score(CELL, "all", (), 58.66)
    assert (nothing.ours, nothing.mean, nothing.difference) == ("-", None, None)


def test_every_period_of_every_cell_has_an_entry(study: Study) -> None:
    entries = entries_of(study)
    assert len(entries) == 6 * 4
    assert {entry.values for entry in entries} == {(60.0, 62.0, 64.0)}
    assert next(entry.paper for entry in entries if entry.cell == CELL and entry.period == "final") == 73.24


def test_averages_over_other_numbers_of_epochs_are_said_to_be_of_other_moments(study: Study) -> None:
    assert AVERAGES_OF_OWN_EPOCHS not in table_of(study).notes
    assert AVERAGES_OF_OWN_EPOCHS in table_of(study_in_memory("compute", by_seed, epochs=2)).notes


def test_markdown_has_ours_the_papers_and_the_difference(study: Study) -> None:
    text = to_markdown(table_of(study))
    assert "| Method | Seeds | First half: ours | First half: paper | First half: diff |" in text
    assert "| SGD | 3 | 62.00 ± 2.00 | 46.98 | +15.02 |" in text
    assert "*Cut down: 2 of 200 epochs, 1 of 3 networks.*" in text
    assert COST_OF_AN_EPOCH in text


def test_what_all_rows_share_stands_in_the_title(study: Study, tmp_path: Path) -> None:
    assert table_of(study).title == "Six methods on CIFAR-10: test accuracy (%), LeNet4"
    write_study(tmp_path / "two", "cifar100", epochs=2, models=["lenet4", "vgg19"])
    (two,), _ = read_studies(tmp_path / "two")
    assert table_of(two).title == "Ten networks on CIFAR-100: test accuracy (%)"
    assert table_of(two).columns[0] == Column("Network", "word", ("LeNet4", "LeNet4", "VGG19", "VGG19"))


@given(st.text(st.sampled_from("a|\\`*_<[]\n&±é"), min_size=1))
def test_no_name_breaks_a_row_of_markdown(name: str) -> None:
    lines = to_markdown(small_table("SGD", name)).splitlines()
    assert len(lines) == len(to_markdown(small_table("SGD", "BCSC")).splitlines())
    unescaped = re.sub(r"\\(.)", "", lines[-1])
    assert unescaped.count("|") == 3
    assert not set(unescaped) & set("\\`*_<[]")


def test_latex_is_a_booktabs_table_with_as_many_cells_in_each_row(study: Study) -> None:
    text = to_latex(table_of(study))
    rows = latex_cells(text)
    assert len(rows) == 6
    assert {len(row) for row in rows} == {2 + 4 * 2}
    assert r"62.00 $\pm$ 2.00 & 46.98 & 62.00" in text
    assert r"\cmidrule(lr){3-4}\cmidrule(lr){5-6}" in text
    assert r"\begin{tabular}{lrrrrrrrrr}" in text


def test_another_condition_is_set_apart_in_latex(tmp_path: Path) -> None:
    (study,), _ = read_studies(write_study(tmp_path, "outliers", epochs=2, seeds=[0], blocks=[2]))
    body = to_latex(table_of(study)).partition(r"\midrule")[2]
    assert [part.count("outliers") for part in body.split(r"\addlinespace")] == [2, 2, 2, 2]


def test_a_caption_is_whole_sentences_with_one_full_stop_each(study: Study) -> None:
    (caption,) = re.findall(r"\\caption\{(.*)\}\\medskip", to_latex(table_of(study)))
    assert caption.startswith(
        r"Six methods on CIFAR-10: test accuracy (\%), LeNet4. Cut down: 2 of 200 epochs, 1 of 3 networks. The paper"
    )
    assert ".." not in caption
    assert [sentence("cut"), sentence("Cut."), sentence("Cut...")] == ["Cut."] * 3


@given(st.text(st.sampled_from("a_%&#${}<>|~^\\\n"), min_size=1))
def test_no_letter_of_a_name_is_a_command_of_latex(name: str) -> None:
    ((label, _), *others) = latex_cells(to_latex(small_table(name)))
    assert others == []
    for known in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", "$<$", "$>$", "$|$"):
        label = label.replace(known, "a")
    assert not set(re.sub(r"\\[_%&#${}]", "", label)) - set("a ")


@pytest.mark.slow
@pytest.mark.skipif(PDFLATEX is None, reason="no LaTeX here: apt-get install texlive-latex-recommended")
def test_latex_compiles_and_fits_the_page(tmp_path: Path) -> None:
    for name in ("cifar10", "cifar100", "outliers", "compute"):
        write_study(tmp_path / name, name, accuracy=by_seed, epochs=2)
    for seed, text in enumerate(("a_b%c&d#e$f{g}h<i>j|k", "~^\\ü±\u4e2d\n\x07")):
        write_run(tmp_path / "own" / str(seed), RunSpec(epochs=1, data="digits", optimizer=text, seed=seed))
    studies, _ = read_studies(tmp_path)
    tables = "\n".join(to_latex(table_of(study)) for study in studies)
    document = rf"\documentclass{{article}}\usepackage{{booktabs,graphicx}}\begin{{document}}{tables}\end{{document}}"
    (tmp_path / "all.tex").write_text(document)
    command = [PDFLATEX, "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert len(studies) == 5
    assert "Overfull" not in done.stdout
    assert "Float too large" not in done.stdout


def test_csv_keeps_every_digit_and_the_caveat(study: Study) -> None:
    rows = list(csv.DictReader(to_csv(study).splitlines()))
    row = next(row for row in rows if row["arm"] == "SGD" and row["period"] == "all")
    assert float(row["difference"]) == 62.0 - 58.66
    assert row["values"] == "60.0 62.0 64.0"
    assert {row["caveat"] for row in rows} == {"cut down: 2 of 200 epochs, 1 of 3 networks"}


def test_periods_without_a_number_in_the_paper_have_no_columns_for_it(tmp_path: Path) -> None:
    (study,), _ = read_studies(write_study(tmp_path, "outliers", epochs=2, seeds=[0], blocks=[2]))
    table = table_of(study)
    assert [column.head for column in table.columns] == [
        *("Condition", "Method", "Seeds"),
        *("ours", "ours", "ours", "paper", "diff", "ours"),
    ]
    assert table.groups == [("", 3), ("First half", 1), ("Last half", 1), ("All", 3), ("Final", 1)]


def test_diverged_runs_are_counted_and_enter_no_mean(tmp_path: Path) -> None:
    write_run(tmp_path / "a", RunSpec(epochs=2), accuracy=by_seed)
    write_run(tmp_path / "b", RunSpec(epochs=2, seed=1), state="diverged", epochs_done=1)
    (study,), _ = read_studies(tmp_path)
    assert table_of(study).rows[0][:3] == ("BCSC M=8", "1, 1 diverged", "60.00")


def test_every_column_is_of_a_known_kind_and_of_the_length_of_the_others(tmp_path: Path, study: Study) -> None:
    write_run(tmp_path / "own", RunSpec(epochs=1))
    (own,), _ = read_studies(tmp_path / "own")
    kinds = [[column.kind for column in table_of(each).columns] for each in (study, own)]
    assert kinds == [["word", "count", *["ours", "paper", "diff"] * 4], ["word", "count", *["ours"] * 4]]
    assert [column.head for column in table_of(own).columns][2:] == ["First half", "Last half", "All", "Final"]
    assert table_of(own).groups == [("", 6)]
    with pytest.raises(ValueError, match="shorter"):
        _ = Table("", (), (Column("a", "word", ("x", "y")), Column("b", "ours", ("1",)))).rows


def test_an_arm_that_the_paper_does_not_have_has_a_dash_beside_the_others(study: Study) -> None:
    missing = {key: value for key, value in study.paper.items() if key[0] != CELL}
    table = table_of(replace(study, paper=missing))
    rows = {row[0]: row[2:5] for row in table.rows}
    assert rows["SGD"][1:] == ("-", "-")
    assert all("-" not in (paper, difference) for arm, (_, paper, difference) in rows.items() if arm != "SGD")


def test_two_seeds_have_a_spread_and_one_has_none() -> None:
    assert Score(CELL, "all", (60.0, 62.0), None).spread == pytest.approx(2**0.5)
    assert Score(CELL, "all", (60.0,), None).spread is None


def test_numbers_are_on_the_right_and_every_row_may_have_a_link() -> None:
    table = small_table("SGD", "BCSC")
    assert markdown_rows(table) == ["| Method | All: ours |", "| --- | ---: |", "| SGD | 1.00 |", "| BCSC | 1.00 |"]
    assert markdown_rows(table, ["[a](b)", "c"]) == [
        "| Method | All: ours | Runs by seed |",
        "| --- | ---: | --- |",
        "| SGD | 1.00 | [a](b) |",
        "| BCSC | 1.00 | c |",
    ]
    with pytest.raises(ValueError, match="shorter"):
        markdown_rows(table, ["a"])


def test_the_commands_around_a_latex_table_open_and_close() -> None:
    lines = to_latex(small_table("À to ÿ stay, ¿ and Ā do not")).splitlines()
    frame = [line for line in lines if line.startswith("\\") and "multicolumn" not in line and "caption" not in line]
    assert frame == [
        r"\begin{table}",
        r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"\begin{tabular}{lr}",
        *(r"\toprule", r"\cmidrule(lr){2-2}", r"\midrule", r"\bottomrule", r"\end{tabular}}", r"\end{table}"),
    ]
    assert r"À to ÿ stay, ? and ? do not & 1.00 \\" in lines
