"""The page of results: all that the records say, no more, and a way from each number to its runs."""

import re
from pathlib import Path

import pytest

from bcsc.cli import main
from bcsc.experiments.experiment import Cell
from bcsc.experiments.tuning import Candidate, Decision, write_decisions
from bcsc.reports.results_page import results_page, studies_in
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run, write_study

REPOSITORY = Path(__file__).resolve().parents[3]
RECORDS, PAGE = REPOSITORY / "records", REPOSITORY / "docs" / "results.md"


@pytest.fixture(scope="module")
def text() -> str:
    return results_page(studies_in(RECORDS), RECORDS, PAGE)


def test_the_committed_page_is_what_the_records_give(text: str) -> None:
    assert PAGE.read_text() == text, "run `make results`"


def test_every_link_leads_to_something(text: str) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")]
    assert len(links) > 50
    assert [link for link in links if not (PAGE.parent / link).exists()] == []


def test_every_finished_run_in_the_records_is_linked(text: str) -> None:
    runs = [path.parent for path in RECORDS.rglob("run.toml")]
    assert runs
    assert [run for run in runs if f"../{run.relative_to(REPOSITORY)})" not in text] == []


def test_figures_compare_no_seconds_of_different_machines(tmp_path: Path) -> None:
    write_study(tmp_path / "records" / "small", "cifar10-deep", epochs=3, seeds=[0], models=["googlenet"])
    assert main(["report", str(tmp_path / "records"), "--markdown", str(tmp_path / "docs.md")]) == 0
    made, committed = tmp_path / "docs", PAGE.parent / "results"
    figures = [path.read_text() for folder in (made, committed) for path in folder.glob("*.svg")]
    assert len(figures) > 9
    assert all("<!-- gradient evaluations -->" in figure and "<!-- seconds -->" not in figure for figure in figures)


def test_the_same_runs_give_the_same_bytes_and_a_row_has_its_runs(tmp_path: Path) -> None:
    write_study(tmp_path / "records" / "small", "cifar10-deep", epochs=3, seeds=[0, 1], models=["googlenet"])
    contents = []
    for _ in range(2):
        assert main(["report", str(tmp_path / "records"), "--markdown", str(tmp_path / "docs.md")]) == 0
        contents.append([path.read_bytes() for path in (tmp_path / "docs.md", *(tmp_path / "docs").iterdir())])
    assert contents[0] == contents[1]
    assert "[0](records/small/" in (tmp_path / "docs.md").read_text()


def test_a_run_that_cannot_be_read_stops_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path / "records" / "small", "cifar10-deep", epochs=3, seeds=[0], models=["googlenet"])
    next(tmp_path.rglob("summary.json")).write_text("{")
    assert main(["report", str(tmp_path / "records"), "--markdown", str(tmp_path / "docs.md")]) == 2
    assert "leaves nothing out" in capsys.readouterr().err
    assert not (tmp_path / "docs.md").exists()


def test_a_folder_with_runs_that_are_not_of_its_study_stops_the_page(tmp_path: Path, capsys) -> None:
    folder = write_study(tmp_path / "records" / "small", "cifar10-deep", epochs=3, seeds=[0], models=["googlenet"])
    write_run(folder / "another", RunSpec(epochs=2))
    assert main(["report", str(tmp_path / "records"), "--markdown", str(tmp_path / "docs.md")]) == 2
    assert f"{folder} holds more than one study" in capsys.readouterr().err
    assert not (tmp_path / "docs.md").exists()


def test_every_table_says_how_far_it_reaches(text: str) -> None:
    masks = text.partition('<a id="masks"></a>')[2].partition("| Method |")[0]
    assert "*In 1 network, at 8 epochs, with 3 seeds, on the first 10000 training samples.*" in masks
    cut_down = text.partition('<a id="cifar10-10-epochs"></a>')[2].partition("| Method |")[0]
    assert "*In 1 of 3 networks, at 10 of 200 epochs, with 3 seeds.*" in cut_down


def test_prose_is_wrapped_and_names_stay_whole(text: str) -> None:
    lead_and_claims = text.partition('<a id="adagrad-10-epochs"></a>')[0]
    prose = [line for line in lead_and_claims.splitlines() if not line.startswith(("|", "#"))]
    assert [line for line in prose if len(line) > 100] == []
    assert [line for line in prose if line.endswith("-")] == []
    assert any("cifar10-200-epochs.**" in line for line in prose)


def test_what_was_tuned_stands_below_the_table_of_its_study(tmp_path: Path) -> None:
    root = write_study(tmp_path / "records" / "small", "cifar10-deep", epochs=3, seeds=[0], models=["googlenet"])
    assert "What was decided" not in results_page(studies_in(tmp_path / "records"), tmp_path, tmp_path / "docs.md")
    tried = (Candidate({"lr": 0.1}, (50.0, 51.0)), Candidate({"lr": 0.2}, (52.0, None)))
    write_decisions(root, {Cell("googlenet", "", "SGD"): Decision({"lr": 0.1}, tried)})
    page = results_page(studies_in(tmp_path / "records"), tmp_path, tmp_path / "docs.md")
    assert page.index("| Method |") < page.index("**What was decided before the final runs.** Chosen by accuracy")
    assert "| lr = 0.1 | 0.1: 50.50 %; 0.2: diverged |" in page


def test_the_figure_of_a_study_without_a_plan_is_called_by_the_heading_beside_it(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / "records" / "mine" / f"run-{seed}", RunSpec(epochs=2, seed=seed))
    (tmp_path / "records" / "mine" / "about.md").write_text("## My runs\n\nWords.\n")
    assert main(["report", str(tmp_path / "records"), "--markdown", str(tmp_path / "docs.md")]) == 0
    figure = (tmp_path / "docs" / "mine-accuracy.svg").read_text()
    assert "<!-- My runs -->" in figure
    assert "Other runs" not in figure
