"""``bcsc runs``: what there is, how it stands, in which order; for people and for programs."""

import json
from pathlib import Path

import pytest

from bcsc.cli import main
from bcsc.runs.folder import RunFolder
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_run(tmp_path / "a", RunSpec(epochs=12, blocks=4, seed=2, lr=0.05), accuracy=lambda *_: 50.0)
    write_run(tmp_path / "b", RunSpec(epochs=3, method="sgd", data="mnist"), accuracy=lambda *_: 70.0)
    write_run(tmp_path / "c", RunSpec(epochs=9), accuracy=lambda *_: 60.0, state="running", epochs_done=4)
    write_run(tmp_path / "d", RunSpec(epochs=9), state="diverged", epochs_done=0)
    write_run(tmp_path / "e", RunSpec(epochs=9))
    (tmp_path / "e" / "summary.json").write_text("{")
    return tmp_path


def shown(root: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["runs", str(root), *words]) == 0
    return [" ".join(line.replace(f"{root}/", "").split()) for line in capsys.readouterr().out.splitlines()]


def test_a_table_with_a_header_says_what_each_run_is_and_how_it_stands(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = shown(root, capsys)
    assert lines[:5] == [
        "run state epochs data model method M rate seed accuracy",
        "a finished 12/12 cifar10 lenet4 bcsc 4 0.05 2 50.00 %",
        "b finished 3/3 mnist lenet4 sgd 1 0.1 0 70.00 %",
        "c interrupted 4/9 cifar10 lenet4 bcsc 8 0.1 0 60.00 %",
        "d diverged 0/9 cifar10 lenet4 bcsc 8 0.1 0",
    ]
    assert lines[5].startswith("e damaged")
    assert "summary.json cannot be read" in lines[5]


def test_a_run_that_a_process_is_in_is_running(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder(root / "c").locked():
        assert shown(root, capsys)[3].startswith("c running 4/9")


def test_columns_stand_below_each_other_with_numbers_to_the_right(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    assert main(["runs", "."]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "run  state        epochs  data     model   method  M  rate  seed  accuracy",
        "a    finished      12/12  cifar10  lenet4  bcsc    4  0.05     2   50.00 %",
        "b    finished        3/3  mnist    lenet4  sgd     1   0.1     0   70.00 %",
    ]


@pytest.mark.parametrize(
    ("column", "order"),
    [
        ("run", "abcde"),
        ("accuracy", "bcade"),
        ("epochs", "dbcae"),
        ("M", "bacde"),
        ("rate", "abcde"),
        ("seed", "bcdae"),
        ("data", "acdbe"),
    ],
)
def test_the_order_is_that_of_a_column_and_what_has_no_value_comes_last(
    root: Path, capsys: pytest.CaptureFixture[str], column: str, order: str
) -> None:
    assert [line[0] for line in shown(root, capsys, "--sort", column)[1:]] == list(order)


def test_programs_get_every_run_as_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(root), "--json", "--sort", "accuracy"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [Path(row["run"]).name for row in rows] == list("bcade")
    assert (rows[0]["accuracy"], rows[0]["lr"], rows[0]["blocks"], rows[0]["epochs_done"]) == (70.0, 0.1, 1, 3)
    assert rows[-1]["state"] == "damaged"


def test_an_optimizer_that_is_not_plain_sgd_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "a", RunSpec(method="sgd", optimizer="pytorch_optimizer:Lion", epochs=1))
    assert "lenet4 sgd, pytorch_optimizer:Lion 1 default 0" in shown(tmp_path, capsys)[1]


def test_no_runs_are_said_to_be_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(tmp_path, capsys) == [f"No runs in {tmp_path}."]
    assert shown(tmp_path, capsys, "--json") == []
