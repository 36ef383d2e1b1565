"""Rates are chosen on held-out samples with seeds of their own, epochs by the clock; reasons are kept."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.errors import DamagedRunError, InvalidArgumentError, MissingExtraError
from bcsc.experiments import tuning
from bcsc.experiments.campaigns.campaign import Job
from bcsc.experiments.catalog import cut_down
from bcsc.experiments.experiment import METHODS_OF_ONE_PASS, Cell, Experiment, passes_of, stretched
from bcsc.experiments.planning.arms import Tuned
from bcsc.experiments.planning.plan_file import experiment_from_toml
from bcsc.experiments.tuning import (
    DECISIONS_FILE,
    Candidate,
    Decision,
    choose,
    decide,
    next_candidates,
    read_decisions,
    training_seconds,
    with_decisions,
    write_decisions,
)
from bcsc.optim.methods import METHODS
from bcsc.runs.spec import RunSpec
from bcsc.training.history import EpochRow
from tests.run_folders import passes, write_run

PLAN = """\
seeds = [0, 1]
budget = "epochs"
recipe = { data = "digits", epochs = 4, lr = { tune = [0.01, 0.1, 1.0] } }
tuning = { validation = 100, seeds = [7, 8] }
[[condition]]
label = "clean"
[[condition]]
label = "noisy"
outliers = "symmetric:0.15"
[[arm]]
label = "SGD"
method = "sgd"
[[arm]]
label = "BCSC M={M}"
method = "bcsc"
blocks = [2, 8]
[[arm]]
label = "fixed"
method = "sgd"
lr = 0.5
"""
BEST = {("SGD", "none"): 0.1, ("SGD", "symmetric:0.15"): 0.01, ("BCSC M=2", "none"): 1.0}


def experiment(old: str = "", new: str = "") -> Experiment:
    assert old in PLAN
    return experiment_from_toml(PLAN.replace(old, new, 1), "mine", "mine.toml")


def accuracy(spec: RunSpec, _epoch: int) -> float:
    """Best at another rate in every cell; on the test set, which no candidate may see, the other way round."""
    arm = "SGD" if spec.method == "sgd" else f"BCSC M={spec.blocks}"
    distance = abs(math.log10((spec.lr or 1.0) / BEST.get((arm, spec.outliers), 0.1)))
    return 50.0 - 10.0 * distance + 0.1 * spec.seed if spec.validation else 50.0 + 10.0 * distance


class Recorder:
    """Carries jobs out by writing their folders, and remembers them."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __call__(self, jobs: Sequence[Job]) -> None:
        self.jobs += jobs
        for job in jobs:
            write_run(job.folder, job.spec, accuracy=accuracy)


def test_every_cell_gets_the_rate_that_is_best_on_its_held_out_samples(tmp_path: Path) -> None:
    carry_out = Recorder()
    decisions = decide(experiment(), tmp_path, carry_out)
    assert {(cell.arm, cell.condition): decision.settings for cell, decision in decisions.items()} == {
        ("SGD", "clean"): {"lr": 0.1},
        ("SGD", "noisy"): {"lr": 0.01},
        ("BCSC M=2", "clean"): {"lr": 1.0},
        ("BCSC M=2", "noisy"): {"lr": 0.1},
        ("BCSC M=8", "clean"): {"lr": 0.1},
        ("BCSC M=8", "noisy"): {"lr": 0.1},
    }
    final = with_decisions(experiment(), decisions).runs()
    assert len(final) == 4 * 2 * 2
    assert {run.spec.lr for run in final if run.cell.arm == "fixed"} == {0.5}
    assert {run.spec.lr for run in final if run.cell.arm == "SGD" and run.cell.condition == "noisy"} == {0.01}


def test_candidates_differ_from_final_runs_by_their_seeds_and_held_out_samples_alone(tmp_path: Path) -> None:
    carry_out = Recorder()
    plan = with_decisions(experiment(), decide(experiment(), tmp_path, carry_out))
    assert len(carry_out.jobs) == len({job.folder for job in carry_out.jobs}) == 6 * 3 * 2
    assert all(job.spec.validation == 100 and job.folder.is_relative_to(tmp_path / "tuning") for job in carry_out.jobs)
    final = {str(replace(run.spec, seed=0)) for run in plan.runs()}
    tried = {str(replace(job.spec, seed=0, validation=None)) for job in carry_out.jobs}
    assert {spec for spec in final if "lr=0.5" not in spec} <= tried
    assert {job.spec.seed for job in carry_out.jobs} == {7, 8}
    assert {run.spec.validation for run in plan.runs()} == {None}
    assert not {run.spec.seed for run in plan.runs()} & {job.spec.seed for job in carry_out.jobs}


def test_before_it_is_decided_a_cell_has_no_final_runs() -> None:
    assert {run.cell.arm for run in experiment().runs()} == {"fixed"}


@pytest.mark.parametrize("seeds", ["[0, 7]", "[8]"])
def test_seeds_of_final_runs_cannot_be_tuned_with(seeds: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"line 4 \(tuning seeds\): The seed \d is one of the final runs"):
        experiment("seeds = [0, 1]", f"seeds = {seeds}")
    with pytest.raises(InvalidArgumentError, match="The seed 7 is one of the final runs"):
        cut_down(experiment(), seeds=[7])


def test_a_subset_has_fewer_held_out_samples() -> None:
    small = cut_down(experiment(), subset=50)
    assert small.tuning is not None
    assert small.tuning.validation == 10
    assert small.note == "cut down: only the first 50 training samples, 10 samples held out"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tuning = { validation = 100, seeds = [7, 8] }", "", "(arm 1 lr): To tune, hold out training samples"),
        ("validation = 100, ", "", "line 4 (tuning validation): validation must be a whole number of at least 1"),
        ("validation = 100", "validation = 1.5", "line 4 (tuning validation): validation must be a whole number"),
        ("[0.01, 0.1, 1.0]", "[]", "line 3 (recipe lr): There must be at least one value of lr to choose from"),
        ("[0.01, 0.1, 1.0]", "[0.1, -1.0]", "line 3 (recipe lr): lr must be a number of at least 0"),
        ("[0.01, 0.1, 1.0]", "0.1", "line 3 (recipe lr): lr is tuned over a list, or over"),
        ("[0.01, 0.1, 1.0]", "{ low = 1.0, high = 0.1, trials = 3 }", "searched from a low above 0"),
        ("[0.01, 0.1, 1.0]", "{ low = 0.1, high = 1.0, trials = 1 }", "trials must be a whole number of at least 2"),
        ('"epochs"', '"minutes"', "line 2 (budget): budget must be one of epochs, gradient evaluations, seconds"),
        ('label = "clean"', 'label = "clean"\nlr = { tune = [0.1, 1.0] }', "(condition 1 lr): lr may be a value or"),
    ],
)
def test_a_mistake_about_tuning_is_named_by_line_and_key(old: str, new: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        experiment(old, new)
    assert message in str(caught.value)


LR = {"lr": Tuned((0.01, 0.1, 1.0))}
ACCURACY = st.none() | st.floats(0, 100)


def candidates(*accuracies: tuple[float | None, ...]) -> list[Candidate]:
    return [Candidate({"lr": lr}, found) for lr, found in zip((0.01, 0.1, 1.0), accuracies, strict=True)]


@given(st.lists(st.tuples(ACCURACY, ACCURACY), min_size=3, max_size=3))
def test_the_best_mean_of_those_that_came_to_their_end_is_chosen(accuracies: list[tuple[float | None, ...]]) -> None:
    decision = choose(LR, candidates(*accuracies))
    whole = {lr: sum(found) for lr, found in zip((0.01, 0.1, 1.0), accuracies, strict=True) if None not in found}
    if not whole:
        assert decision.settings == {}
        assert decision.warnings == ("no candidate came to its end: try smaller rates",)
    else:
        assert whole[decision.settings["lr"]] == pytest.approx(max(whole.values()))
    assert decision.candidates == tuple(candidates(*accuracies))


@pytest.mark.parametrize(
    ("best", "warning"),
    [
        (0, "lr = 0.01 is the smallest that was tried: the best may lie beyond it"),
        (1, ""),
        (2, "lr = 1.0 is the largest that was tried: the best may lie beyond it"),
    ],
)
def test_a_best_at_the_edge_of_the_grid_is_warned_of(best: int, warning: str) -> None:
    found: list[tuple[float | None, ...]] = [(50.0,)] * 3
    found[best] = (60.0,)
    assert choose(LR, candidates(*found)).warnings == ((warning,) if warning else ())


def test_words_zero_and_a_single_value_have_no_edge() -> None:
    tuned = {"schedule": Tuned(("cosine", "constant")), "momentum": Tuned((0.0, 0.9, 0.99)), "lr": Tuned((0.1,))}
    best = Candidate({"schedule": "cosine", "momentum": 0.0, "lr": 0.1}, (60.0,))
    assert choose(tuned, [best]).warnings == ()


def test_several_tuned_settings_are_a_grid() -> None:
    tuned = {"lr": Tuned((0.1, 1.0)), "momentum": Tuned((0.0, 0.9))}
    grid = next_candidates(tuned, [])
    assert grid == [{"lr": lr, "momentum": momentum} for lr in (0.1, 1.0) for momentum in (0.0, 0.9)]
    assert next_candidates(tuned, [Candidate(grid[0], (1.0,))]) == []


def test_optuna_searches_a_range_in_trials_that_can_be_replayed() -> None:
    pytest.importorskip("optuna")
    tuned = {"lr": Tuned(low=0.001, high=1.0, trials=9), "schedule": Tuned(("cosine", "constant"))}
    tried: list[Candidate] = []
    while new := next_candidates(tuned, tried):
        assert next_candidates(tuned, list(tried)) == new
        (settings,) = new
        assert 0.001 <= settings["lr"] <= 1.0
        diverged = settings["lr"] > 0.5
        tried.append(Candidate(settings, (None if diverged else 50 - abs(math.log10(settings["lr"] / 0.1)),)))
    assert len(tried) == len({candidate.settings["lr"] for candidate in tried}) == 9
    assert abs(math.log10(choose(tuned, tried).settings["lr"] / 0.1)) < 0.5


@pytest.mark.parametrize(("lr", "end"), [(0.00105, "smallest"), (0.95, "largest"), (0.1, "")])
def test_a_best_at_the_end_of_a_range_is_warned_of(lr: float, end: str) -> None:
    warnings = choose({"lr": Tuned(low=0.001, high=1.0, trials=2)}, [Candidate({"lr": lr}, (1.0,))]).warnings
    assert [end in warning for warning in warnings] == ([True] if end else [])


def test_without_optuna_a_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtraError, match=r"Optuna is needed: pip install 'bcsc\[tune\]', or give a list"):
        next_candidates({"lr": Tuned(low=0.1, high=1.0, trials=2)}, [])


def test_decisions_are_kept_with_their_reasons(tmp_path: Path) -> None:
    decisions = {
        Cell("lenet4", "clean", "SGD"): Decision(
            {"lr": 0.1}, tuple(candidates((1.0,), (2.0,), (None,))), None, ("oh",)
        ),
        Cell("lenet4", "clean", "BCSC M=8", 8): Decision({"epochs": 3}, seconds_per_epoch=1.5),
    }
    assert read_decisions(tmp_path) == {}
    write_decisions(tmp_path, decisions)
    assert read_decisions(tmp_path) == decisions
    assert [decision.words for decision in decisions.values()] == [
        "lr = 0.1 (on held-out samples 0.01: 1.00 %; 0.1: 2.00 %; 1.0: diverged); oh",
        "epochs = 3 (1.50 s per epoch)",
    ]


@pytest.mark.parametrize("text", ["[", '{"a": 1}', "[3]", '[{"cell": ["a"]}]', "[" * 100_000])
def test_damaged_decisions_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / DECISIONS_FILE).write_text(text)
    with pytest.raises(DamagedRunError, match="decisions.json cannot be read"):
        read_decisions(tmp_path)


def test_at_equal_gradient_evaluations_every_arm_computes_what_the_costliest_does() -> None:
    plan = experiment('"epochs"', '"gradient evaluations"')
    plan = with_decisions(plan, {cell: Decision({"lr": 0.1}) for cell in plan.cells()})
    assert plan.compared_by == plan.budget == "gradient_evaluations"
    assert {run.spec.epochs * passes(run.spec) for run in plan.runs()} == {4 * 8}
    assert {run.cell.arm: run.spec.epochs for run in plan.runs()} == {
        "SGD": 32,
        "BCSC M=2": 16,
        "BCSC M=8": 4,
        "fixed": 32,
    }
    few = cut_down(plan, arms=["SGD"])
    assert {run.spec.epochs for run in few.runs()} == {32}, "leaving arms out must not change the budget"


def test_at_equal_seconds_every_arm_takes_as_long_as_the_slowest_of_its_place(tmp_path: Path) -> None:
    plan = experiment('"epochs"', '"seconds"')
    assert plan.runs() == []
    carry_out = Recorder()
    plan = with_decisions(plan, decisions := decide(plan, tmp_path, carry_out))
    per_epoch = {cell: decision.seconds_per_epoch for cell, decision in decisions.items()}
    assert {cell.arm: seconds for cell, seconds in per_epoch.items()} == {
        "SGD": 6.0,
        "BCSC M=2": 12.0,
        "BCSC M=8": 48.0,
        "fixed": 6.0,
    }
    assert {run.cell.arm: run.spec.epochs for run in plan.runs()} == {
        "SGD": 32,
        "BCSC M=2": 16,
        "BCSC M=8": 4,
        "fixed": 32,
    }
    tried = [job.spec for job in carry_out.jobs if job.folder.is_relative_to(tmp_path / "tuning")]
    assert {(spec.method, spec.blocks): spec.epochs for spec in tried} == {
        ("sgd", 1): 32,
        ("bcsc", 2): 16,
        ("bcsc", 8): 4,
    }


def test_an_epoch_is_timed_without_its_test() -> None:
    row = EpochRow(2, 0.1, 1.0, 0.1, 1.0, 50.0, gradient_evaluations=2000, seconds=9.0, images_per_second=250.0)
    assert training_seconds(row) == 4.0


def test_networks_and_conditions_do_not_stretch_each_other() -> None:
    costs = {
        Cell("lenet4", "clean", "SGD"): 1.0,
        Cell("lenet4", "clean", "BCSC M=8", 8): 8.0,
        Cell("lenet4", "noisy", "SGD"): 3.0,
        Cell("vgg19", "clean", "SGD"): 400.0,
        Cell("vgg19", "clean", "BCSC M=8", 8): 3200.0,
    }
    assert list(stretched(costs, epochs=5).values()) == [40, 5, 5, 40, 5]


def test_an_arm_that_diverges_while_it_is_timed_has_no_final_runs(tmp_path: Path) -> None:
    def carry_out(jobs: Sequence[Job]) -> None:
        for job in jobs:
            diverges = job.spec.lr == 0.5
            write_run(
                job.folder, job.spec, accuracy=accuracy, **({"state": "diverged", "epochs_done": 0} if diverges else {})
            )

    plan = experiment('"epochs"', '"seconds"')
    decisions = decide(plan, tmp_path, carry_out)
    assert {run.cell.arm for run in with_decisions(plan, decisions).runs()} == {"SGD", "BCSC M=2", "BCSC M=8"}
    assert {d.warnings for cell, d in decisions.items() if cell.arm == "fixed"} == {("it diverged while it was timed",)}


def test_an_arm_cannot_set_epochs_that_the_budget_sets() -> None:
    with pytest.raises(InvalidArgumentError, match=r"\(arm 1 epochs\): The budget sets the epochs of every arm"):
        experiment_from_toml('budget = "gradient evaluations"\n[[arm]]\nlabel = "A"\nepochs = 3\n', "mine", "mine.toml")


def test_the_passes_of_an_epoch_are_those_of_the_method() -> None:
    for name, method in METHODS.items():
        expected = 1 if method.one_pass else method.num_blocks(8)
        assert passes_of({"method": name, "blocks": 8}, RunSpec()) == expected
    assert set(METHODS_OF_ONE_PASS) <= set(METHODS)


HUGE = 10**400


@pytest.mark.parametrize("values", [[], [[]], ["50"], [True], [float("nan")], [HUGE], [50.0, "none"], {}, 5])
def test_accuracies_that_are_none_are_refused_by_file_when_decisions_are_read(tmp_path: Path, values: object) -> None:
    entry = {"cell": ["lenet4", "", "SGD", 1], "settings": {"lr": 0.1}, "seconds_per_epoch": None, "warnings": []}
    (tmp_path / DECISIONS_FILE).write_text(
        json.dumps([{**entry, "candidates": [{"settings": {"lr": 0.1}, "accuracies": values}]}])
    )
    with pytest.raises(DamagedRunError, match=DECISIONS_FILE):
        read_decisions(tmp_path)


@pytest.mark.parametrize("seconds", ["1.5", [], True, HUGE, float("inf")])
def test_seconds_that_are_none_are_refused_by_file_when_decisions_are_read(tmp_path: Path, seconds: object) -> None:
    entry = {"cell": ["lenet4", "", "SGD", 1], "settings": {}, "candidates": [], "warnings": []}
    (tmp_path / DECISIONS_FILE).write_text(json.dumps([{**entry, "seconds_per_epoch": seconds}]))
    with pytest.raises(DamagedRunError, match=DECISIONS_FILE):
        read_decisions(tmp_path)
