import pickle

import numpy as np
import pytest

from bcsc.cli import main
from bcsc.data import dataset, fetching
from bcsc.data.dataset import data_root
from bcsc.data.registry import find_source


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("BCSC_DATA", str(tmp_path))
    return tmp_path


def test_list_says_what_is_here_and_how_to_get_the_rest(empty, capsys):
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"data folder: {empty}"
    assert [line.split()[0] for line in lines[1:]] == [
        "digits",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "cifar100-coarse",
    ]
    assert lines[1].endswith("here")
    assert lines[2].endswith("bcsc data get mnist")


def test_get_of_what_comes_along_needs_no_network(empty, capsys):
    assert main(["data", "get", "digits"]) == 0
    assert capsys.readouterr().out == "digits: comes with bcsc\n"


def test_get_of_an_unknown_name_is_one_line(empty, capsys):
    assert main(["data", "get", "cifar"]) == 2
    assert "Did you mean 'cifar10'" in capsys.readouterr().err


def test_check_passes_over_what_is_absent(empty, capsys):
    assert main(["data", "check"]) == 0
    out = capsys.readouterr().out
    assert "digits          comes with bcsc, content checks passed" in out
    assert out.count("not here") == 5
    assert main(["data", "check", "digits", "mnist"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["digits", "mnist"]
    assert main(["data", "check", "digit"]) == 2
    assert "Did you mean 'digits'" in capsys.readouterr().err


def test_check_finds_damaged_and_incomplete_sets(empty, capsys):
    folder = empty / "cifar-100-python"
    folder.mkdir()
    record = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1], b"coarse_labels": [0, 1]}
    for name in ("train", "test"):
        (folder / name).write_bytes(pickle.dumps(record, 2))
    (empty / "cifar-10-batches-py").mkdir()
    (empty / "cifar-10-batches-py/test_batch").write_bytes(b"")
    assert main(["data", "check"]) == 1
    out = capsys.readouterr().out
    assert "cifar100        WRONG: The training images in" in out
    assert "cifar10         WRONG: no data_batch_1, data_batch_2" in out


def test_check_goes_on_after_a_file_that_cannot_be_opened(empty, capsys, monkeypatch):
    (empty / "MNIST/raw").mkdir(parents=True)
    for name in find_source("mnist").files:
        (empty / "MNIST/raw" / name).write_bytes(b"")

    def refuse(folder, name):
        raise PermissionError(13, "Permission denied", f"{folder}/{name}")

    monkeypatch.setattr("bcsc.data.decoders.mnist.open_file", refuse)
    assert main(["data", "check"]) == 1
    out = capsys.readouterr().out
    assert "mnist           WRONG: [Errno 13] Permission denied" in out
    assert out.splitlines()[-1].startswith("cifar100-coarse")


def test_control_characters_of_a_file_do_not_reach_the_terminal(empty, capsys):
    folder = empty / "cifar-100-python"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / name).write_bytes(b"\x80\x04\x8c\x02os\x8c\x09\x1b[31m\nred\x93.")
    assert main(["data", "check"]) == 1
    out = capsys.readouterr().out
    assert r"It asks for os.\x1b[31m red, which plain data never needs" in out
    assert "\x1b" not in out


def test_a_folder_of_an_unknown_user_is_just_not_there(monkeypatch, capsys):
    monkeypatch.setenv("BCSC_DATA", "~no-such-user/data")
    assert main(["data", "check"]) == 0
    assert capsys.readouterr().out.count("not here") == 5


def test_what_is_here_is_not_fetched_again_and_get_says_how(empty, capsys):
    (empty / "MNIST/raw").mkdir(parents=True)
    for name in find_source("mnist").files:
        (empty / "MNIST/raw" / name).write_bytes(b"")
    assert main(["data", "get", "mnist"]) == 0
    assert "bcsc data check verifies it; remove it to get it anew" in capsys.readouterr().out


def test_check_says_whether_the_files_are_the_official_ones(empty, monkeypatch, capsys):
    (empty / "MNIST/raw").mkdir(parents=True)
    for name in find_source("mnist").files:
        (empty / "MNIST/raw" / name).write_bytes(b"")
    monkeypatch.setattr(dataset, "load", lambda *_, **__: None)
    monkeypatch.setattr(dataset, "check_content", lambda _: None)
    for says in ("not the official bytes", "official files"):
        assert main(["data", "check"]) == 0
        assert f"\nmnist           {says}, content checks passed\n" in capsys.readouterr().out
        monkeypatch.setattr(fetching, "_hashes", lambda path: set(find_source("mnist").files[path.name]))


@pytest.mark.slow
def test_check_accepts_the_real_files(capsys):
    if find_source("cifar10").missing(data_root()):
        pytest.skip(f"the files of cifar10 are not in {data_root()}: set BCSC_DATA or run `bcsc data get cifar10`")
    assert main(["data", "check"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("cifar10 "))
    assert line.endswith("content checks passed")


def test_show_draws_a_sheet_and_reports_the_rates(empty, capsys):
    pytest.importorskip("matplotlib")
    sheet = empty / "sheet.png"
    assert main(["data", "show", "digits", "--outliers", "symmetric:0.1", "--out", str(sheet)]) == 0
    assert sheet.read_bytes().startswith(b"\x89PNG")
    expected = "outliers symmetric:0.1: 10.00% requested, 10.02% realised (144 of 1,437 samples)"
    assert capsys.readouterr().out.splitlines()[0] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--outliers", "symmetric:2"], "rate from 0 to 1"),
        (["--outliers", "human:absent.pt:worse_label"], "There is no file absent.pt"),
        (["--outliers", ""], "The kind of outliers must be one of"),
        (["--out", "no/such/folder/sheet.png"], "There is no folder no/such/folder"),
        (["--out", "sheet.xyz"], "must end with .png"),
        (["--out", "sheet.pgf"], "must end with .png"),
        (["--out", "sheet"], "must end with .png"),
        (["--out", ""], "must end with .png"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(empty, capsys, options, message):
    assert main(["data", "show", "digits", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
