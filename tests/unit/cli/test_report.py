"""``bcsc report`` takes one folder or several, and says in one line what is wrong with them."""

from pathlib import Path

import pytest

from bcsc.cli import main
from bcsc.runs.folder import run_folders
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run

RECORDS = Path(__file__).parents[3] / "records"
RECORDED = {folder.relative_to(RECORDS).parts[0] for folder in run_folders(RECORDS)}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcsc.reports.page.plotly_js", lambda: "")
    monkeypatch.setattr("bcsc.reports.write.write_figures", lambda *_: [])


def test_the_report_goes_beside_the_runs_of_one_folder_or_where_it_is_wanted(tmp_path: Path, capsys) -> None:
    write_run(tmp_path / "a", RunSpec(epochs=1))
    write_run(tmp_path / "b", RunSpec(epochs=1, seed=1))
    assert main(["report", str(tmp_path / "a")]) == 0
    assert main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "deep" / "both")]) == 0
    pages = [tmp_path / "a" / "report" / "index.html", tmp_path / "deep" / "both" / "index.html"]
    assert capsys.readouterr().out.splitlines() == [f"report: {page}" for page in pages]
    assert [page.read_text().count('class="run"') for page in pages] == [1, 2]


@pytest.mark.parametrize(
    ("folders", "message"), [(["no"], "no is not a folder"), (["empty"], "There are no runs in"), ([], "required")]
)
def test_a_mistake_is_one_line(tmp_path: Path, capsys, folders: list[str], message: str) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["report", *(str(tmp_path / name) for name in folders)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_report_on_a_folder_of_records_finds_every_run_finished(tmp_path: Path, name: str) -> None:
    expected = len(run_folders(RECORDS / name))
    assert main(["report", str(RECORDS / name), "--out", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text()
    assert f"{expected} finished of {expected} run" in page
    assert 'id="damaged"' not in page


def test_what_is_left_out_is_said_beside_the_path_of_the_report(tmp_path: Path, capsys) -> None:
    for name in ("whole", "damaged"):
        write_run(tmp_path / name, RunSpec(epochs=1, seed=len(name)))
    (tmp_path / "damaged" / "metrics.jsonl").write_text("")
    assert main(["report", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out == f"report: {tmp_path / 'report' / 'index.html'}\n"
    assert said.err.startswith(f"left out: {tmp_path / 'damaged'}")
    assert said.err.count("\n") == 1
