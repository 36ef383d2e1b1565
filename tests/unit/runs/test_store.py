"""Run folders are read as they were written, and a damaged one is reported by path and harms no other."""

import json
import math
from pathlib import Path

import pytest

from bcsc.errors import DamagedRunError
from bcsc.runs.spec import RunSpec
from bcsc.runs.store import read_run, read_runs
from tests.run_folders import ORIGIN, metrics, plausible_accuracy, write_run

SPEC = RunSpec(epochs=4, seed=1)


def test_a_record_says_what_the_folder_says(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, SPEC))
    assert record.spec == SPEC
    assert [row.test_accuracy for row in record.rows] == [plausible_accuracy(SPEC, epoch) for epoch in (1, 2, 3, 4)]
    assert record.accuracy("final") == record.rows[-1].test_accuracy
    assert record.seconds_so_far()[-1] == pytest.approx(4 * metrics(SPEC, 1, plausible_accuracy)["seconds"])
    assert record.origin == ORIGIN


def test_a_run_that_has_not_ended_has_no_accuracies(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, SPEC, state="interrupted", epochs_done=2))
    assert (len(record.rows), record.is_finished) == (2, False)
    with pytest.raises(ValueError, match="has no accuracies: it is interrupted"):
        record.accuracy("all")


def test_a_line_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    write_run(tmp_path, SPEC, state="running", epochs_done=2)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "learn')
    assert [row.epoch for row in read_run(tmp_path).rows] == [1, 2]


def test_a_diverged_run_may_hold_numbers_that_are_none(tmp_path: Path) -> None:
    write_run(tmp_path, SPEC, state="diverged", epochs_done=1, accuracy=lambda _spec, _epoch: math.nan)
    assert math.isnan(read_run(tmp_path).rows[0].test_loss)


def test_what_a_later_version_adds_is_left_alone(tmp_path: Path) -> None:
    write_run(tmp_path, SPEC)
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mood": "good"}))
    assert read_run(tmp_path).is_finished


@pytest.mark.parametrize("name", ["run.toml", "metrics.jsonl", "summary.json", "origin.json"])
def test_a_file_cut_short_anywhere_is_damage(tmp_path: Path, name: str) -> None:
    content = (write_run(tmp_path, SPEC) / name).read_bytes()
    for length in range(0, len(content) - 1, 7):
        (tmp_path / name).write_bytes(content[:length])
        with pytest.raises(DamagedRunError, match=str(tmp_path)):
            read_run(tmp_path)


@pytest.mark.parametrize("name", ["run.toml", "metrics.jsonl", "summary.json", "origin.json"])
def test_a_finished_run_without_one_of_its_files_is_damaged(tmp_path: Path, name: str) -> None:
    (write_run(tmp_path, SPEC) / name).unlink()
    with pytest.raises(DamagedRunError, match="is missing|0 of 4 epochs"):
        read_run(tmp_path)


@pytest.mark.parametrize("content", [b"[]", b"3", b"null", b"\xff\xfe", b'{"state": "finished"}'])
def test_a_summary_of_another_kind_is_damage(tmp_path: Path, content: bytes) -> None:
    (write_run(tmp_path, SPEC) / "summary.json").write_bytes(content)
    with pytest.raises(DamagedRunError, match=r"summary\.json cannot be read"):
        read_run(tmp_path)


def test_a_damaged_folder_is_reported_by_path_and_the_others_are_read(tmp_path: Path) -> None:
    write_run(tmp_path / "good", SPEC)
    (write_run(tmp_path / "deep" / "bad", SPEC) / "summary.json").write_text("{")
    records, damaged = read_runs(tmp_path)
    assert [record.folder.name for record in records] == ["good"]
    assert [run.folder for run in damaged] == [tmp_path / "deep" / "bad"]
    assert str(tmp_path / "deep" / "bad" / "summary.json") in damaged[0].reason


def test_folders_set_aside_are_not_read(tmp_path: Path) -> None:
    for name in ("a", "a.1", "v1.2"):
        write_run(tmp_path / name, SPEC)
    assert [record.folder.name for record in read_runs(tmp_path)[0]] == ["a", "v1.2"]
