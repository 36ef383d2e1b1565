"""The files of a run in every format there was: whole they are read for ever, cut short or changed they are not."""

import hashlib
import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.errors import DamagedRunError
from bcsc.runs.folder import RunFolder, read_runs, run_folders
from bcsc.runs.record import (
    origin_from_text,
    rows_to_text,
    spec_from_text,
    spec_to_text,
    summarise,
    summary_from_text,
    summary_to_text,
    table_to_text,
)
from bcsc.runs.spec import RunSpec, spec_to_toml
from tests.run_folders import plausible_accuracy, rows_of

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "tests" / "fixtures" / "runs"
RECORDED = run_folders(ROOT / "records")


def test_every_run_that_is_on_record_is_read_and_finished() -> None:
    records, damaged = read_runs(ROOT / "records")
    assert damaged == []
    assert len(records) == len(RECORDED) >= 92
    assert all(record.is_finished for record in records)
    assert len([record for record in records if "masks" in record.folder.parts]) == 12


def test_a_folder_of_every_format_is_read_with_the_defaults_of_its_time() -> None:
    of_one, of_two, of_three = (RunFolder(SAMPLES / f"format-{number}").read() for number in (1, 2, 3))
    common = RunSpec(data="digits", epochs=2, outliers="symmetric:0.15", threads=1)
    assert of_one.spec == replace(common, blocks=2, subset=200, parallel="exact", sync_batch_norm=False)
    assert of_two.spec == replace(common, blocks=4, subset=500, dropout=0.1, schedule="cosine")
    assert of_three.spec == replace(common, blocks=3, subset=300)
    assert [record.accuracy("final") for record in (of_one, of_two, of_three)] == FINAL


FINAL = [21.666666666666668, 76.94444444444444, 55.55555555555556]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_configuration_of_any_format_cut_short_anywhere_is_damage(number: int) -> None:
    text = (SAMPLES / f"format-{number}" / "run.toml").read_text()
    # Up to format 2 two cuts cannot be told: before a subset, which may be left out, and before what format 2 added.
    untold = {text.find(name) for name in ("subset", "parallel")} if number < 3 else set()
    for length in {*range(len(text))} - untold:
        with pytest.raises(ValueError, match="cut short|not a TOML file"):
            spec_from_text(text[:length])


def test_a_configuration_without_its_last_line_is_cut_short() -> None:
    lines = spec_to_text(RunSpec()).splitlines(keepends=True)
    with pytest.raises(ValueError, match="cut short"):
        spec_from_text("".join(lines[:-1]))


def test_a_configuration_that_was_changed_is_not_believed() -> None:
    text = spec_to_text(RunSpec(blocks=8))
    with pytest.raises(ValueError, match="changed after it was written"):
        spec_from_text(text.replace("blocks = 8", "blocks = 4"))


def test_a_later_format_asks_for_a_later_version() -> None:
    text = spec_to_text(RunSpec()).replace("format 3", "format 4")
    with pytest.raises(ValueError, match="of format 4, this bcsc knows up to 3: install a later one"):
        spec_from_text(text)


@given(st.builds(RunSpec, data=st.text(st.characters(exclude_categories=["Cs"])), subset=st.none() | st.integers(1, 9)))
def test_what_is_written_is_read(spec: RunSpec) -> None:
    assert spec_from_text(spec_to_text(spec)) == spec


def test_a_setting_that_is_new_does_not_make_older_files_look_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of format 3 say themselves that they are whole, so a setting may be missing."""
    without_mask = "".join(line for line in spec_to_toml(RunSpec()).splitlines(True) if not line.startswith("mask"))
    monkeypatch.setattr("bcsc.runs.record.spec_to_toml", lambda _: without_mask)
    text = spec_to_text(RunSpec())
    assert "mask" not in text
    assert spec_from_text(text) == RunSpec()


def finished(tmp_path: Path) -> Path:
    for path in (SAMPLES / "format-3").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize("field", ["test_loss", "test_accuracy", "gradient_evaluations", "seconds", "learning_rate"])
def test_a_measurement_that_was_changed_is_not_believed(tmp_path: Path, field: str) -> None:
    path = finished(tmp_path) / "metrics.jsonl"
    first, *others = path.read_text().splitlines()
    row = json.loads(first)
    path.write_text("\n".join([json.dumps({**row, field: row[field] + 1}), *others]) + "\n")
    with pytest.raises(DamagedRunError, match="metrics.jsonl is not the one that summary.json was made from"):
        RunFolder(tmp_path).read()


@pytest.mark.parametrize("field", ["epochs", "epochs_done", "test_accuracy", "gradient_evaluations", "seconds"])
def test_a_summary_that_does_not_follow_from_the_rows_is_not_believed(tmp_path: Path, field: str) -> None:
    path = finished(tmp_path) / "summary.json"
    summary = json.loads(path.read_text())
    value = {**summary[field], "best": 99.0} if field == "test_accuracy" else summary[field] + 1
    path.write_text(json.dumps({**summary, field: value}))
    with pytest.raises(DamagedRunError, match=f"summary.json says {field} = "):
        RunFolder(tmp_path).read()


def test_lines_of_other_epochs_are_damage(tmp_path: Path) -> None:
    path = finished(tmp_path) / "metrics.jsonl"
    first, last = path.read_text().splitlines()
    path.write_text(f"{last}\n{first}\n")
    with pytest.raises(DamagedRunError, match="its 2 lines are not those of the epochs 1, 2, 3"):
        RunFolder(tmp_path).read()


def test_the_settings_of_the_second_format_are_those_of_its_time() -> None:
    """A guard for whoever adds a setting: it must not be asked of older files."""
    text = (SAMPLES / "format-2" / "run.toml").read_text()
    assert {line.split(" = ")[0] for line in text.splitlines()} <= {field.name for field in fields(RunSpec)}


@pytest.mark.parametrize(("name", "value"), [("started", 3), ("started", None), ("resumed", "1"), ("torch", [])])
def test_what_is_wrong_with_an_origin_is_named(name: str, value: object) -> None:
    origin = {"started": "2026-01-01", "resumed": 0, "torch": "2.13.0"}
    assert origin_from_text(json.dumps(origin)) == origin
    with pytest.raises(ValueError, match=f"^{name} must be of type"):
        origin_from_text(json.dumps({**origin, name: value}))


def test_a_summary_is_all_that_follows_from_the_rows_and_what_it_is_told() -> None:
    spec = RunSpec(epochs=2)
    nothing = summarise(spec, [], "running")
    assert (nothing.gradient_evaluations, nothing.seconds, nothing.test_accuracy, nothing.epochs_done) == (
        0,
        0.0,
        None,
        0,
    )
    rows = rows_of(spec, 2, plausible_accuracy)
    told = summarise(spec, rows, "diverged", outliers={"count": 3}, message="too fast")
    assert (told.outliers, told.message, told.state) == ({"count": 3}, "too fast", "diverged")
    assert told.metrics_sha256 == hashlib.sha256(rows_to_text(rows).encode()).hexdigest()
    assert (told.gradient_evaluations, told.seconds) == (rows[1].gradient_evaluations, sum(r.seconds for r in rows))


@pytest.mark.parametrize("name", ["summary.json", "origin.json"])
def test_a_table_that_is_read_and_written_again_has_the_same_bytes(name: str) -> None:
    text = (SAMPLES / "format-3" / name).read_text()
    assert table_to_text(json.loads(text)) == text


def test_messages_name_what_is_wrong_with_a_file() -> None:
    with pytest.raises(ValueError, match="^it is not a TOML file"):
        spec_from_text("epochs = [")
    summary = json.loads((SAMPLES / "format-3" / "summary.json").read_text())
    with pytest.raises(ValueError, match="^state must be one of running, interrupted, finished, diverged"):
        summary_from_text(json.dumps({**summary, "state": "done"}))


@pytest.mark.parametrize("done", [0, 2, 4])
def test_a_summary_is_read_back_as_it_was_written(done: int) -> None:
    spec = RunSpec(epochs=4)
    rows = rows_of(spec, done, plausible_accuracy)
    summary = summarise(spec, rows, "finished" if done == 4 else "diverged", outliers={"rate": 0.5}, message="so far")
    assert summary_from_text(summary_to_text(summary)) == summary
