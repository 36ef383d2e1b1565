"""``bcsc compare``: a plan of one's own, from its file to its verdicts."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import bcsc
from bcsc.cli import main
from bcsc.experiments.catalog import plan_text
from bcsc.experiments.study import EXPERIMENT_FILE, PLAN_FILE, read_studies
from bcsc.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("quick_campaigns")

PLAN = """\
title = "Mine"
seeds = [0, 1, 2]

[recipe]
data = "digits"
epochs = 2

[[arm]]
label = "SGD"
method = "sgd"

[[arm]]
label = "BCSC M={M}"
method = "bcsc"
blocks = [8]

[[claim]]
says = "BCSC M={M} over SGD"
periods = ["all"]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(PLAN)
    return path


def test_one_command_goes_from_a_file_to_a_verdict_and_again_does_no_work(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["compare", str(plan), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Mine: 6 runs\n" in printed
    assert "BCSC M=8 over SGD. Holds in 1 network, at 2 epochs, with 3 seeds.\n" in printed
    assert printed.endswith(f"report: {out / 'report' / 'index.html'}\n")
    assert main(["compare", str(plan), "--out", str(out)]) == 0
    assert "6 finished before" in capsys.readouterr().out


def test_a_plan_in_python_gives_its_verdicts_and_its_page(plan: Path, tmp_path: Path) -> None:
    comparison = bcsc.compare(plan, tmp_path / "out", subset=100)
    assert [verdict.sentence for verdict in comparison.verdicts] == [
        "holds so far in 1 network, at 2 epochs, with 3 seeds, only the first 100 training samples"
    ]
    assert {outcome.state for outcome in comparison.outcomes} == {"finished"}
    assert comparison.page == tmp_path / "out" / "report" / "index.html"


def test_the_folder_carries_the_plan_so_that_it_is_read_without_the_file(plan: Path, tmp_path: Path) -> None:
    bcsc.compare(plan, tmp_path / "out")
    plan.unlink()
    (study,), damaged = read_studies(tmp_path / "out")
    assert not damaged
    assert (study.title, study.is_named, study.caveat) == ("Mine", False, "")
    assert (tmp_path / "out" / PLAN_FILE).read_text() == PLAN


def test_a_plan_may_grow_in_the_same_folder_but_not_change(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", str(plan), "--out", str(tmp_path / "out")]
    main(command)
    plan.write_text(PLAN + '\n[[arm]]\nlabel = "RBC M={M}"\nmethod = "rbc"\nblocks = [8]\n')
    assert main(command) == 0
    assert "6 finished before, 3 finished" in capsys.readouterr().out
    plan.write_text(PLAN.replace("blocks = [8]", "blocks = [8]\nlr = 0.2"))
    assert main(command) == 2
    assert "lenet4-bcsc-m-8: lr was None, is 0.2. Give another --out." in capsys.readouterr().err


def test_what_is_added_to_a_folder_joins_what_is_there(plan: Path, tmp_path: Path) -> None:
    for cut in ({"seeds": range(1)}, {"seeds": [2], "arms": ["SGD"]}, {"seeds": (1,)}):
        bcsc.compare(plan, tmp_path / "out", **cut)
    (study,), _ = read_studies(tmp_path / "out")
    seeds = {cell.arm: [run.spec.seed for run in runs] for cell, runs in study.finished.items()}
    assert seeds == {"SGD": [0, 1, 2], "BCSC M=8": [0, 1]}
    assert study.caveat == "5 of 6 runs finished"


def test_what_would_change_the_epochs_of_equal_gradients_does_not_join(plan: Path, tmp_path: Path, capsys) -> None:
    plan.write_text(f'budget = "gradient evaluations"\n{PLAN}')
    bcsc.compare(plan, tmp_path / "out")
    content = (tmp_path / "out" / EXPERIMENT_FILE).read_text()
    for blocks in ("4", "16"):
        command = ["compare", str(plan), "--out", str(tmp_path / "out"), "--blocks", blocks]
        assert main([*command, "--arms", f"BCSC M={blocks}"]) == 2
        assert "epochs was" in capsys.readouterr().err
    assert (tmp_path / "out" / EXPERIMENT_FILE).read_text() == content


def test_a_plan_of_ones_own_and_one_of_the_package_do_not_share_a_folder(tmp_path: Path, capsys) -> None:
    own = tmp_path / "outliers.toml"
    own.write_text(plan_text("outliers"))
    cut = ["--epochs", "1", "--seeds", "0", "--arms", "SGD", "--out", str(tmp_path / "out")]
    assert main(["compare", str(own), *cut]) == 0
    assert main(["reproduce", "outliers", *cut]) == 2
    assert "holds other runs: they are of a plan of your own" in capsys.readouterr().err


def test_what_is_timed_or_tuned_otherwise_is_done_anew(plan: Path, tmp_path: Path) -> None:
    plan.write_text(f'budget = "seconds"\n{PLAN}')
    for seeds in ([1], [0]):
        comparison = bcsc.compare(plan, tmp_path / "out", seeds=seeds)
        assert {outcome.state for outcome in comparison.outcomes} == {"finished"}
    timed = tmp_path / "out" / "timing" / "runs"
    assert sorted(path.name for path in timed.iterdir() if "aside" in path.name) == [
        "lenet4-bcsc-m-8.aside-1",
        "lenet4-sgd.aside-1",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[0.1, 0.2]", "[0.1, 0.2, 0.4]"),
        ("validation = 100", "validation = 200"),
        ("seeds = [1000]", "seeds = [1001]"),
    ],
)
def test_what_was_tuned_otherwise_is_not_joined_with_what_is_left_out(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str
) -> None:
    text = f"tuning = {{ validation = 100, seeds = [1000] }}\n{PLAN}".replace(
        "epochs = 2", "epochs = 2\nlr = { tune = [0.1, 0.2] }"
    )
    plan.write_text(text)
    command = ["compare", str(plan), "--out", str(tmp_path / "out")]
    assert main([*command, "--arms", "SGD"]) == 0
    plan.write_text(text.replace(old, new))
    assert main([*command, "--arms", "BCSC M=8"]) == 2
    assert "lenet4-sgd was tuned in another way and is left out now. Give another" in capsys.readouterr().err
    assert (tmp_path / "out" / PLAN_FILE).read_text() == text
    assert main(command) == 0


def test_equal_time_is_not_joined_with_what_was_timed_before(plan: Path, tmp_path: Path) -> None:
    plan.write_text(f'budget = "seconds"\n{PLAN}')
    for seed in (0, 1):
        bcsc.compare(plan, tmp_path / "out", seeds=[seed])
    assert [run.spec.seed for run in next(iter(read_studies(tmp_path / "out")[0][0].runs.values()))] == [1]


def test_jobs_are_not_for_a_ray_cluster(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(plan), "--out", str(tmp_path / "out"), "--engine", "ray", "--jobs", "2"]) == 2
    assert "--jobs is for processes here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAN.replace("bcsc", "bscs"), "mine.toml, line 14 (arm 2 method): method must be one of sgd"),
        (PLAN.replace('"SGD"\n', '"SGD"\noptimizer = "no.such:Thing"\n', 1), "line 10 (arm 1 optimizer): There is no"),
        (
            PLAN.replace('"sgd"', '"sgd"\noptimizer_options = { nestrov = true }', 1),
            "line 11 (arm 1 optimizer_options): An",
        ),
        (PLAN.replace('"bcsc"', '"magma"\nmask = "all"', 1), "line 14 (arm 2 method): align=True multiplies the move"),
        (PLAN.replace('"bcsc"', '"bcsc"\noptimizer = "lbfgs"', 1), "line 14 (arm 2 method): LBFGS cannot be the base"),
        (
            PLAN.replace("epochs = 2", "epochs = 2\nsubset = 5000"),
            "line 7 (recipe subset): subset must be from 1 to the",
        ),
        (PLAN.replace("blocks", "subset = 5000\nblocks"), "line 15 (arm 2 subset): subset must be from 1 to the 1437"),
        (f"tuning = {{ validation = 1437 }}\n{PLAN}", "line 1 (tuning validation): validation must be from 1 to 1436"),
        ("", "There must be at least one arm"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_before_anything_is_written(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    plan.write_text(text)
    assert main(["compare", str(plan), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_plan_that_is_neither_a_file_nor_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bcsc.BcscError, match="The experiment, if it is no TOML file, must be one of blocks"):
        bcsc.compare("outlier", tmp_path)
    with pytest.raises(bcsc.BcscError, match="mine.toml cannot be read"):
        bcsc.compare(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ({"seed": [0]}, "What a plan is cut down by must be one of epochs, .* Did you mean 'seeds'"),
        ({"seeds": 3}, "seeds must be a list, got 3"),
        ({"seeds": [0, -1]}, "A seed must be a whole number of at least 0, got -1"),
        ({"conditions": ["clean"]}, "The plan has no condition to choose, got clean"),
        ({"arms": "SGD"}, "arms must be a list, got 'SGD'"),
    ],
)
def test_a_wrong_cut_in_python_is_named(plan: Path, tmp_path: Path, cut: dict[str, Any], message: str) -> None:
    with pytest.raises(bcsc.BcscError, match=message):
        bcsc.compare(plan, tmp_path / "out", **cut)
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_run_is_not_taken_for_a_comparison(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    with pytest.raises(bcsc.BcscError, match="is the folder of one run"):
        bcsc.compare(plan, tmp_path)


def test_a_damaged_plan_in_a_folder_is_reported_and_its_runs_are_shown(plan: Path, tmp_path: Path) -> None:
    bcsc.compare(plan, tmp_path / "out")
    (tmp_path / "out" / PLAN_FILE).write_text(PLAN[:60])
    (study,), (damaged,) = read_studies(tmp_path / "out")
    assert study.name == "other-runs"
    assert str(tmp_path / "out" / EXPERIMENT_FILE) in damaged.reason


def test_a_folder_is_one_comparisons_at_a_time(plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunFolder(tmp_path / "out").locked():
        assert main(["compare", str(plan), "--out", str(tmp_path / "out")]) == 2
    assert f"Another process is training in {tmp_path / 'out'}. Wait for it" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["lock"]
    assert main(["compare", str(plan), "--out", str(tmp_path / "out")]) == 0


def test_a_comparison_may_run_in_a_thread_of_its_own(plan: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        comparison = pool.submit(bcsc.compare, plan, tmp_path / "out").result()
    assert {outcome.state for outcome in comparison.outcomes} == {"finished"}


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "plan.toml", "--out", ""],
        ["reproduce", "cifar10", "--out", ""],
        ["report", ".", "--out", ""],
        ["report", ".", "--markdown", ""],
        ["demo", "--out", ""],
    ],
)
def test_a_place_without_a_name_is_not_the_working_directory(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert "the name of the folder is empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
