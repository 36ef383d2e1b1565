"""A folder is read as it was written, belongs to one process, and keeps two checkpoints; damage is named by path."""

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from bcsc.errors import CheckpointError, DamagedRunError, StateMismatchError
from bcsc.files import WriteError
from bcsc.runs import folder as files_of_a_run
from bcsc.runs.folder import NEWEST, PREVIOUS, WAY_OUT, FolderBusyError, RunFolder, read_runs
from bcsc.runs.spec import RunSpec
from tests.run_folders import ORIGIN, metrics, plausible_accuracy, write_run

SPEC = RunSpec(epochs=4, seed=1)


def test_a_record_says_what_the_folder_says(tmp_path: Path) -> None:
    record = RunFolder(write_run(tmp_path, SPEC)).read()
    assert record.spec == SPEC
    assert [row.test_accuracy for row in record.rows] == [plausible_accuracy(SPEC, epoch) for epoch in (1, 2, 3, 4)]
    assert record.accuracy("final") == record.rows[-1].test_accuracy
    assert record.seconds_so_far()[-1] == pytest.approx(4 * metrics(SPEC, 1, plausible_accuracy)["seconds"])
    assert record.origin == ORIGIN


def test_a_run_that_has_not_ended_has_no_accuracies(tmp_path: Path) -> None:
    record = RunFolder(write_run(tmp_path, SPEC, state="interrupted", epochs_done=2)).read()
    assert (len(record.rows), record.is_finished) == (2, False)
    with pytest.raises(ValueError, match="has no accuracies: it is interrupted"):
        record.accuracy("all")


def test_a_line_that_is_still_being_written_is_not_read(tmp_path: Path) -> None:
    write_run(tmp_path, SPEC, state="running", epochs_done=2)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 3, "learn')
    assert [row.epoch for row in RunFolder(tmp_path).read().rows] == [1, 2]


def test_a_diverged_run_may_hold_numbers_that_are_none(tmp_path: Path) -> None:
    write_run(tmp_path, SPEC, state="diverged", epochs_done=1, accuracy=lambda _spec, _epoch: math.nan)
    assert math.isnan(RunFolder(tmp_path).read().rows[0].test_loss)


def test_what_a_later_version_adds_is_left_alone(tmp_path: Path) -> None:
    write_run(tmp_path, SPEC)
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mood": "good"}))
    assert RunFolder(tmp_path).read().is_finished


@pytest.mark.parametrize("name", ["run.toml", "metrics.jsonl", "summary.json", "origin.json"])
def test_a_file_cut_short_anywhere_is_damage(tmp_path: Path, name: str) -> None:
    content = (write_run(tmp_path, SPEC) / name).read_bytes()
    for length in range(0, len(content) - 1, 7):
        (tmp_path / name).write_bytes(content[:length])
        with pytest.raises(DamagedRunError, match=str(tmp_path)):
            RunFolder(tmp_path).read()


@pytest.mark.parametrize("name", ["run.toml", "metrics.jsonl", "summary.json", "origin.json"])
def test_a_finished_run_without_one_of_its_files_is_damaged(tmp_path: Path, name: str) -> None:
    (write_run(tmp_path, SPEC) / name).unlink()
    with pytest.raises(DamagedRunError, match="is missing|0 of 4 epochs"):
        RunFolder(tmp_path).read()


@pytest.mark.parametrize("content", [b"[]", b"3", b"null", b"\xff\xfe", b'{"state": "finished"}'])
def test_a_summary_of_another_kind_is_damage(tmp_path: Path, content: bytes) -> None:
    (write_run(tmp_path, SPEC) / "summary.json").write_bytes(content)
    with pytest.raises(DamagedRunError, match=r"summary\.json cannot be read"):
        RunFolder(tmp_path).read()


def test_a_damaged_folder_is_reported_by_path_and_the_others_are_read(tmp_path: Path) -> None:
    write_run(tmp_path / "good", SPEC)
    (write_run(tmp_path / "deep" / "bad", SPEC) / "summary.json").write_text("{")
    records, damaged = read_runs(tmp_path)
    assert [record.folder.name for record in records] == ["good"]
    assert [run.folder for run in damaged] == [tmp_path / "deep" / "bad"]
    assert str(tmp_path / "deep" / "bad" / "summary.json") in damaged[0].reason


def test_folders_set_aside_are_not_read(tmp_path: Path) -> None:
    kept = ["a", "a.5", "b.aside-1", "c-0", "c-0.5", "v1.2"]
    for name in (*kept, "a.aside-1", "c-0.5.aside-2"):
        write_run(tmp_path / name, SPEC)
    assert [record.folder.name for record in read_runs(tmp_path)[0]] == kept
    aside = RunFolder(tmp_path / "a").set_aside()
    assert aside == tmp_path / "a.aside-2"
    write_run(tmp_path / "a", SPEC)
    assert [record.folder.name for record in read_runs(tmp_path)[0]] == kept


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked():
        assert RunFolder(tmp_path).is_busy()
        with pytest.raises(FolderBusyError, match="Another process is training in"), RunFolder(tmp_path).locked():
            pass
    assert not RunFolder(tmp_path).is_busy()


def test_one_who_only_looks_does_not_keep_a_run_from_beginning(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked():
        pass
    waits = iter([False, True])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files_of_a_run, "try_lock", lambda _: next(waits))
        with RunFolder(tmp_path).locked():
            assert next(waits, None) is None


def read_number(path: Path) -> int:
    """Stands in for the reader of checkpoints."""
    if not path.read_bytes().isdigit():
        raise CheckpointError(f"{path} cannot be read.")
    return int(path.read_bytes())


def test_the_last_two_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.read_checkpoint(read_number) == (None, None)
    for number in range(3):
        folder.write_checkpoint(str(number).encode())
    assert folder.read_checkpoint(read_number) == (2, None)
    assert read_number(tmp_path / PREVIOUS) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [PREVIOUS, NEWEST]


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before_and_it_is_said(tmp_path: Path) -> None:
    for content in (b"1", b"damaged"):
        RunFolder(tmp_path).write_checkpoint(content)
    complaint = f"{tmp_path / NEWEST} cannot be read. Going on from {PREVIOUS}."
    assert RunFolder(tmp_path).read_checkpoint(read_number) == (1, complaint)


def test_the_good_checkpoint_survives_a_crash_in_the_save_after_the_fallback(tmp_path: Path, monkeypatch) -> None:
    folder = RunFolder(tmp_path)
    for content in (b"1", b"damaged"):
        folder.write_checkpoint(content)
    folder.set_damaged_checkpoint_aside()
    replace = os.replace

    def crash(source: Path, target: Path) -> None:
        if Path(target).name == NEWEST:
            raise OSError(errno.EIO, "crash")
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(WriteError, match="crash"):
        folder.write_checkpoint(b"3")
    assert folder.read_checkpoint(read_number)[0] == 1
    assert (tmp_path / "checkpoint.damaged.pt").read_bytes() == b"damaged"


def test_two_damaged_checkpoints_are_an_error_that_names_the_way_out(tmp_path: Path) -> None:
    for _ in range(2):
        RunFolder(tmp_path).write_checkpoint(b"no checkpoint")
    with pytest.raises(CheckpointError, match="checkpoint.pt cannot be read.*previous.pt cannot be read.*--restart"):
        RunFolder(tmp_path).read_checkpoint(read_number)


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", NEWEST, PREVIOUS])
def test_any_result_without_its_configuration_belongs_to_nobody(tmp_path: Path, name: str) -> None:
    RunFolder(tmp_path).check_same_run(SPEC)
    (tmp_path / name).touch()
    with pytest.raises(StateMismatchError, match="holds results but no run.toml"):
        RunFolder(tmp_path).check_same_run(SPEC)


def test_a_run_is_carried_elsewhere_with_its_checkpoints_and_without_what_is_not_its_own(
    tmp_path: Path,
) -> None:
    here, there = RunFolder(write_run(tmp_path / "here", SPEC)), RunFolder(tmp_path / "there")
    for content in (b"one", b"two"):
        here.write_checkpoint(content)
    (here.path / "notes.txt").write_text("mine")
    with here.locked():
        there.write_files(here.files())
    assert there.read().rows == here.read().rows
    assert {name: (there.path / name).read_bytes() for name in (PREVIOUS, NEWEST)} == {PREVIOUS: b"one", NEWEST: b"two"}
    assert {path.name for path in here.path.iterdir()} - {path.name for path in there.path.iterdir()} == {
        "lock",
        "notes.txt",
    }
    assert RunFolder(tmp_path / "nowhere").files() == {}


def test_what_was_carried_is_written_with_the_checkpoint_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = RunFolder(write_run(tmp_path / "here", SPEC))
    here.write_checkpoint(b"one")
    here.write_checkpoint(b"two")
    written: list[str] = []
    monkeypatch.setattr(files_of_a_run, "write_whole", lambda path, _content: written.append(path.name))
    RunFolder(tmp_path / "there").write_files(here.files())
    assert written[:2] == [PREVIOUS, NEWEST]
    assert set(written[2:]) == {"run.toml", "metrics.jsonl", "summary.json", "origin.json"}


def test_a_folder_goes_on_with_its_own_run_only(tmp_path: Path) -> None:
    RunFolder(tmp_path / "nothing").check_same_run(SPEC)
    folder = RunFolder(write_run(tmp_path / "run", SPEC))
    folder.check_same_run(SPEC)
    with pytest.raises(StateMismatchError) as refused:
        folder.check_same_run(replace(SPEC, seed=2, blocks=3))
    assert str(refused.value) == f"{folder.path} holds another run: blocks was 8, is 3; seed was 1, is 2. {WAY_OUT}"
    (folder.path / "run.toml").write_text("")
    with pytest.raises(StateMismatchError) as refused:
        folder.check_same_run(SPEC)
    assert str(refused.value) == f"{folder.path / 'run.toml'} cannot be read: it is cut short. {WAY_OUT}"


def test_the_epochs_done_are_those_written_down(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "nothing").epochs_done() == 0
    assert RunFolder(write_run(tmp_path / "run", SPEC, epochs_done=3)).epochs_done() == 3


def test_the_outliers_are_a_table_in_a_file_of_their_own(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_outliers({"count": 2, "indices": [3, 5]})
    assert json.loads((tmp_path / "outliers.json").read_text()) == {"count": 2, "indices": [3, 5]}


def test_only_after_a_failed_attempt_there_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    answers = iter([False, False, True, False])
    assert list(files_of_a_run.attempts(lambda: next(answers))) == [False, False, True]
    assert pauses == [files_of_a_run.SECONDS_BETWEEN_ATTEMPTS] * 2


@pytest.mark.parametrize("name", ["run.toml", "metrics.jsonl", "summary.json"])
def test_a_folder_with_a_file_of_a_run_is_a_runs(tmp_path: Path, name: str) -> None:
    assert not RunFolder(tmp_path).exists()
    (tmp_path / "lock").touch()
    assert not RunFolder(tmp_path).exists()
    (tmp_path / name).touch()
    assert RunFolder(tmp_path).exists()


def test_a_folder_is_set_aside_under_the_next_number(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.set_aside() is None
    for number in (1, 2, 3):
        write_run(tmp_path / "run", replace(SPEC, seed=number))
        assert folder.set_aside() == tmp_path / f"run.aside-{number}"
        assert not folder.path.exists()
        assert RunFolder(tmp_path / f"run.aside-{number}").read().spec.seed == number


def test_a_folder_that_is_set_aside_while_one_waits_for_it_is_anothers(tmp_path: Path, monkeypatch) -> None:
    """Whoever locks the file of the folder that was, and not of the one that is, has nothing."""
    real = files_of_a_run.try_lock

    def overtaken(file: IO[str]) -> bool:
        monkeypatch.setattr(files_of_a_run, "try_lock", real)
        RunFolder(tmp_path / "run").set_aside()
        if is_made_anew:
            write_run(tmp_path / "run", SPEC).joinpath("lock").touch()
        return real(file)

    for is_made_anew in (True, False):
        for take in (RunFolder.set_aside, lambda folder: folder.locked().__enter__()):
            write_run(tmp_path / "run", SPEC).joinpath("lock").touch()
            monkeypatch.setattr(files_of_a_run, "try_lock", overtaken)
            with pytest.raises(FolderBusyError, match="Another process is training"):
                take(RunFolder(tmp_path / "run"))
            assert (tmp_path / "run").exists() == is_made_anew


def test_the_files_of_a_run_are_carried_to_a_folder_that_need_not_be_there(tmp_path: Path) -> None:
    folder = RunFolder(write_run(tmp_path / "run", SPEC))
    folder.write_checkpoint(b"weights")
    elsewhere = RunFolder(tmp_path / "deep" / "elsewhere")
    elsewhere.write_files(folder.files())
    assert replace(elsewhere.read(), folder=folder.path) == folder.read()
    assert (elsewhere.path / NEWEST).read_bytes() == b"weights"
    elsewhere.write_files(folder.files())


def test_a_run_that_ended_before_its_first_epoch_needs_no_file_of_epochs(tmp_path: Path) -> None:
    (write_run(tmp_path, SPEC, state="diverged", epochs_done=0) / "metrics.jsonl").unlink()
    record = RunFolder(tmp_path).read()
    assert (record.rows, record.summary.state) == ((), "diverged")


def test_a_folder_is_made_with_those_above_it_when_it_is_taken(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "a" / "b").locked():
        assert (tmp_path / "a" / "b").is_dir()
