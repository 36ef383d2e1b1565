"""Runs find their place in an experiment by what they compute; the others are shown too."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bcsc.experiments.catalog import EXPERIMENTS, cut_down
from bcsc.experiments.experiment import Cell
from bcsc.experiments.study import EXPERIMENT_FILE, outermost, read_studies, write_experiment
from bcsc.runs.folder import ORIGIN
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_run, write_study

CUT = {"epochs": 4, "seeds": [0, 1]}


def test_every_planned_run_is_found_whatever_its_folder_and_threads(tmp_path: Path) -> None:
    write_study(tmp_path, "outliers", **CUT)
    run = cut_down(EXPERIMENTS["outliers"], epochs=4, seeds=[0, 1]).runs()[5]
    write_run(tmp_path / "runs" / run.name, replace(run.spec, threads=1))
    (tmp_path / "runs" / run.name).rename(tmp_path / "elsewhere")
    (study,), damaged = read_studies(tmp_path)
    assert not damaged
    assert study.caveat == "cut down: 4 of 200 epochs, 2 of 3 seeds"
    assert all([record.spec.seed for record in records] == [0, 1] for records in study.finished.values())


def test_missing_runs_are_counted_in_the_caveat(tmp_path: Path) -> None:
    write_study(tmp_path, "cifar10", epochs=2, models=["lenet4"], seeds=[0])
    run = cut_down(EXPERIMENTS["cifar10"], epochs=2, models=["lenet4"], seeds=[0]).runs()[0]
    write_run(tmp_path / "runs" / run.name, run.spec, state="running", epochs_done=1)
    (study,), _ = read_studies(tmp_path)
    assert study.caveat.endswith("; 5 of 6 runs finished")


def test_studies_come_in_the_order_of_the_catalog_and_other_runs_last(tmp_path: Path) -> None:
    write_study(tmp_path / "a", "compute", epochs=2, seeds=[0], blocks=[2])
    write_study(tmp_path / "b", "outliers", epochs=2, seeds=[0], blocks=[2])
    write_run(tmp_path / "mine", RunSpec(epochs=2, seed=3))
    studies, _ = read_studies(tmp_path)
    assert [study.name for study in studies] == ["outliers", "compute", "other-runs"]
    assert list(studies[-1].runs) == [Cell("lenet4", "cifar10", "BCSC M=8", 8)]


def test_other_runs_are_told_apart_by_what_differs_between_them_and_from_the_default(tmp_path: Path) -> None:
    write_run(tmp_path / "a", RunSpec(epochs=2))
    write_run(tmp_path / "b", RunSpec(epochs=2, lr=0.5))
    write_run(tmp_path / "c", RunSpec(epochs=2, lr=0.5, seed=1))
    (study,), _ = read_studies(tmp_path)
    assert {cell.arm: len(runs) for cell, runs in study.runs.items()} == {
        "BCSC M=8": 1,
        "BCSC M=8, lr=0.5": 2,
    }


def test_of_runs_that_are_to_give_the_same_numbers_one_counts(tmp_path: Path) -> None:
    for threads in (1, 2):
        write_run(tmp_path / f"{threads}", RunSpec(epochs=2, threads=threads))
    (study,), _ = read_studies(tmp_path)
    assert [len(runs) for runs in study.runs.values()] == [1]
    assert study.caveat == ""


def test_runs_that_were_measured_on_held_out_samples_say_so(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"{seed}", RunSpec(epochs=2, seed=seed, validation=50))
    (study,), _ = read_studies(tmp_path)
    assert [cell.arm for cell in study.runs] == ["BCSC M=8, validation=50"]


def test_block_parallel_runs_of_another_number_of_ranks_are_another_method(tmp_path: Path) -> None:
    for ranks in (2, 4):
        for seed in (0, 1):
            write_run(tmp_path / f"{ranks}-{seed}", RunSpec(epochs=2, seed=seed, parallel="blocks"))
            path = tmp_path / f"{ranks}-{seed}" / ORIGIN
            path.write_text(json.dumps({**json.loads(path.read_text()), "ranks": ranks}))
    write_run(tmp_path / "exact", RunSpec(epochs=2))
    (study,), _ = read_studies(tmp_path)
    assert {cell.arm: len(runs) for cell, runs in study.runs.items()} == {
        "BCSC M=8, parallel=blocks, W=2": 2,
        "BCSC M=8, parallel=blocks, W=4": 2,
        "BCSC M=8": 1,
    }


NO_CUT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)
CUTS = st.sampled_from(["epochs", "models", "seeds", "blocks", "subset", "conditions", "arms", "other"])


@settings(max_examples=40)
@example({"arms": [None]})
@example({"seeds": ["a"]})
@given(st.dictionaries(CUTS, NO_CUT, max_size=2) | NO_CUT)
def test_whatever_an_experiment_file_holds_its_runs_are_shown(
    tmp_path_factory: pytest.TempPathFactory, cut: object
) -> None:
    root = tmp_path_factory.mktemp("study")
    write_run(root / "run", RunSpec(epochs=2))
    (root / EXPERIMENT_FILE).write_text(json.dumps({"experiment": "cifar10", "cut": cut}))
    studies, damaged = read_studies(root)
    assert [bad.folder for bad in damaged] in ([], [root / EXPERIMENT_FILE])
    assert sum(len(runs) for study in studies for runs in study.runs.values()) == 1


def test_a_damaged_experiment_file_is_reported_and_its_runs_are_shown(tmp_path: Path) -> None:
    write_study(tmp_path, "outliers", epochs=2, seeds=[0], blocks=[2])
    (tmp_path / EXPERIMENT_FILE).write_text('{"experiment": "out')
    (study,), (damaged,) = read_studies(tmp_path)
    assert study.name == "other-runs"
    assert str(tmp_path / EXPERIMENT_FILE) in damaged.reason


def test_several_folders_are_read_as_one_and_none_twice(tmp_path: Path) -> None:
    write_study(tmp_path / "a" / "deep", "outliers", epochs=2, seeds=[0], blocks=[2])
    write_run(tmp_path / "b", RunSpec(epochs=2))
    write_run(tmp_path / "c", RunSpec(epochs=2, method="sgd"))
    folders = [tmp_path / name for name in ("a/deep", "a", "b", "c", "b/../c")]
    studies, _ = read_studies(*folders)
    assert [(study.name, study.folder) for study in studies] == [
        ("outliers", tmp_path / "a" / "deep"),
        ("other-runs", None),
    ]
    assert [sum(map(len, study.runs.values())) for study in studies] == [8, 2]
    assert outermost(folders) == (tmp_path / "a", tmp_path / "b", tmp_path / "c")


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_finished_run_counts_before_an_unfinished_one_that_is_to_give_the_same(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    spec = cut_down(EXPERIMENTS["cifar10"], epochs=2, models=["lenet4"], seeds=[0]).runs()[0].spec
    for folder in ("other", "planned"):
        if folder == "planned":
            write_study(tmp_path / folder, "cifar10", epochs=2, models=["lenet4"], seeds=[0], arms=["AdaGrad"])
        write_run(tmp_path / folder / names[0], spec)
        write_run(tmp_path / folder / names[1], spec, state="interrupted", epochs_done=1)
        (study, *_), _ = read_studies(tmp_path / folder)
        assert (study.num_finished, study.num_planned) == (1, 1)


def test_a_plan_is_read_as_it_was_written_whatever_the_language_of_the_machine(tmp_path: Path) -> None:
    plan = 'title = "Résumé"\nrecipe = { data = "digits" }\narm = [{ label = "Größe", method = "sgd" }]\n'
    write_experiment(tmp_path, "mine", {}, plan)
    code = f"from bcsc.experiments.study import *; print(ascii(read_experiment(Path({str(tmp_path)!r})).title))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == ascii("Résumé"), done.stderr
