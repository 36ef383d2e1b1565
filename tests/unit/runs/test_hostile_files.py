"""Whatever is in the files of a run: it is read as it was written, or refused in one line; never a traceback."""

import json
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.cli import main
from bcsc.errors import BcscError, CheckpointError, Diverged, InvalidArgumentError
from bcsc.runs.folder import RunFolder, read_runs
from bcsc.runs.spec import RunSpec, spec_from_toml
from bcsc.training.checkpoint import checkpoint_content, digest, read_checkpoint
from tests.hostile import DEEP, JSON_VALUES, MANY, NONSENSE, VALUES, changed, places
from tests.run_folders import write_run
from tests.unit.training.test_trainer import built, interrupted_after, trained, with_dropout

SPEC = RunSpec(epochs=2, seed=1)
SIDE_FILES = ["run.toml", "metrics.jsonl", "summary.json", "origin.json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", SPEC)


def assert_read_or_refused(folder: Path, name: str, content: bytes) -> None:
    before, good = (folder / name).read_bytes(), RunFolder(folder).read()
    (folder / name).write_bytes(content)
    try:
        records, damaged = read_runs(folder)
    finally:
        (folder / name).write_bytes(before)
    for run in damaged:
        assert str(folder) in run.reason
    for record in records:
        same = (record.spec, record.rows, record.summary.test_accuracy) == (
            good.spec,
            good.rows,
            good.summary.test_accuracy,
        )
        assert same or record.summary.state != "finished"
    assert len(records) + len(damaged) == 1


@MANY
@given(name=st.sampled_from(SIDE_FILES), content=st.binary(max_size=20) | NONSENSE | JSON_VALUES.map(json.dumps))
def test_any_content_of_a_side_file_is_read_or_refused(folder: Path, name: str, content: bytes | str) -> None:
    assert_read_or_refused(folder, name, content if isinstance(content, bytes) else content.encode())


@MANY
@given(name=st.sampled_from(SIDE_FILES[1:]), data=st.data(), value=JSON_VALUES)
def test_any_value_of_any_field_is_read_or_refused(folder: Path, name: str, data: st.DataObject, value: Any) -> None:
    lines = (folder / name).read_text().splitlines() if name == "metrics.jsonl" else [(folder / name).read_text()]
    tables = [json.loads(line) for line in lines]
    table = data.draw(st.sampled_from(tables))
    table[data.draw(st.sampled_from(list(table)))] = value
    assert_read_or_refused(folder, name, "".join(json.dumps(table) + "\n" for table in tables).encode())


@pytest.mark.parametrize("name", SIDE_FILES)
@pytest.mark.parametrize("content", [b"[" * DEEP + b"\n", b"9" * 5000 + b"\n", b'"text"\n'])
def test_a_hostile_folder_is_listed_as_damaged_and_its_file_is_named(tmp_path: Path, capsys, name, content) -> None:
    (write_run(tmp_path / "bad", SPEC) / name).write_bytes(content)
    write_run(tmp_path / "good", SPEC)
    assert main(["runs", str(tmp_path)]) == 0
    header, bad, good = capsys.readouterr().out.splitlines()
    assert "accuracy" in header
    assert "damaged" in bad
    assert str(tmp_path / "bad" / name) in bad
    assert "finished" in good


@pytest.mark.parametrize("text", ["blocks = " + "[" * DEEP, "blocks = " + "9" * 5000, 'data = "\0"'])
def test_a_hostile_configuration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"x\.toml is not a TOML file"):
        spec_from_toml(text, "x.toml")


@pytest.mark.parametrize("option", ["eps=" + "[" * DEEP, "eps=" + "9" * 5000, "eps=" + "[" * 50])
def test_a_hostile_option_is_one_line_and_exit_code_2(tmp_path: Path, capsys, option: str) -> None:
    assert main(["train", "--data", "digits", "--optimizer-options", option, "--out", str(tmp_path / "run")]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("bcsc: ")
    assert errors.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_text_that_no_file_can_hold_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="data must be text that a file can hold"):
        RunSpec(data="digits\udc80")


STATES = [interrupted_after(count, built(model=with_dropout())) for count in (4, 13)]


@MANY
@given(state=st.sampled_from(STATES), data=st.data(), value=VALUES, gone=st.booleans())
def test_any_value_of_any_field_of_a_state_is_refused_or_gone_on_from(state, data, value, gone) -> None:
    place = data.draw(st.sampled_from(list(places(state))))
    trainer = built(model=with_dropout())
    before = digest(trainer.state_dict())
    try:
        trainer.load_state_dict(changed(state, place, value, gone=gone))
    except BcscError:
        assert digest(trainer.state_dict()) == before
        return
    with suppress(Diverged):
        assert len(trained(trainer).rows) == 3


@MANY
@given(state=st.sampled_from(STATES), data=st.data(), value=VALUES)
def test_any_field_of_a_checkpoint_that_was_changed_is_noticed(tmp_path_factory, state, data, value) -> None:
    path = tmp_path_factory.mktemp("checkpoint") / "checkpoint.pt"
    path.write_bytes(checkpoint_content(state, "its run"))
    written = torch.load(path, weights_only=True)
    before = digest(written)
    torch.save(changed(written, data.draw(st.sampled_from(list(places(written)))), value), path)
    try:
        assert digest({**read_checkpoint(path), "sha256": written["sha256"]}) == before
    except CheckpointError:
        assert path.exists()


def a_full_disk() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_disk_that_is_full_during_a_checkpoint_says_so_in_words(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "bcsc",
        "train",
        "--data",
        "digits",
        "--epochs",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    ended = subprocess.run(command, preexec_fn=a_full_disk, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(
        f"bcsc: Cannot write {tmp_path / 'run' / 'checkpoint.pt'}: File too"
    )
    assert "Traceback" not in ended.stderr
