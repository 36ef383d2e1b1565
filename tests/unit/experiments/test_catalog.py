"""Experiments name the right runs, and a cut-down one says so."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.errors import InvalidArgumentError
from bcsc.experiments.catalog import EXPERIMENTS, cut_down, joined_cut, paper_numbers
from bcsc.experiments.experiment import NETWORKS, PERIODS, Cell
from bcsc.experiments.planning.arms import Arm, Condition
from bcsc.runs.spec import RunSpec

PER_SEED = {
    "blocks": 3 * 5,
    "outliers": 4 * 4,
    "adagrad": 2 * 2,
    "dropout": 4 * 4,
    "cifar10": 3 * 6,
    "cifar10-deep": 2 * 2,
    "cifar100": 10 * 2,
    "compute": 2 * 4,
}


def spec_of(name: str, cell: Cell) -> RunSpec:
    return next(run.spec for run in EXPERIMENTS[name].runs() if run.cell == cell)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_cell_is_run_once_per_seed_under_a_name_of_its_own(name: str) -> None:
    experiment = EXPERIMENTS[name]
    runs = experiment.runs()
    assert len(runs) == PER_SEED[name] * len(experiment.seeds)
    assert len({run.name for run in runs}) == len(runs)
    assert len({str(run.spec) for run in runs}) == len(runs)
    assert {run.spec.model for run in runs} <= set(NETWORKS)


def test_the_defaults_of_every_run_are_the_recipe_of_the_paper() -> None:
    bcsc = spec_of("cifar10", Cell("vgg19", "", "BCSC M=8", 8))
    assert bcsc == RunSpec(data="cifar10", model="vgg19", method="bcsc", blocks=8)
    assert (bcsc.epochs, bcsc.batch_size, bcsc.schedule) == (200, 128, "staircase")
    assert spec_of("blocks", Cell("vgg19", "", "BCSC M=16", 16)) == replace(bcsc, blocks=16, schedule="constant")


def test_adagrad_and_adadelta_are_optimizers_of_plain_steps() -> None:
    for label in ("AdaGrad", "AdaDelta"):
        spec = spec_of("cifar10", Cell("lenet4", "", label))
        assert (spec.method, spec.blocks, spec.optimizer) == ("sgd", 1, label.lower())
    assert spec_of("adagrad", Cell("vgg19", "", "AdaGrad + BCSC M=8", 8)).optimizer == "adagrad"


def test_outliers_and_dropout_are_conditions_of_every_arm() -> None:
    assert spec_of("outliers", Cell("lenet4", "15 % outliers", "SGD")).outliers == "symmetric:0.15"
    assert spec_of("outliers", Cell("lenet4", "no outliers", "BCSC M=2", 2)).outliers == "none"
    dropout = spec_of("dropout", Cell("lenet4", "5 % dropout", "BCSC M=2", 2))
    assert (dropout.dropout, dropout.data) == (0.05, "mnist")


def test_the_arms_of_compute_all_see_as_many_samples() -> None:
    for epochs, blocks in ((200, 8), (4, 2)):
        experiment = cut_down(EXPERIMENTS["compute"], epochs=epochs, blocks=[blocks])
        assert {run.spec.epochs * run.spec.blocks for run in experiment.runs()} == {epochs * blocks}
    settings = {run.cell.arm: (run.spec.lr, run.spec.batch_size) for run in EXPERIMENTS["compute"].runs()}
    assert settings == {
        "BCSC M=8": (0.1, 128),
        "SGD, rate/8, 8x epochs": (0.0125, 128),
        "SGD, 8x epochs": (0.1, 128),
        "SGD, 8x batch, 8x epochs": (0.1, 1024),
    }


def test_a_cut_down_experiment_says_what_it_leaves_out() -> None:
    small = cut_down(EXPERIMENTS["cifar10"], epochs=8, models=["lenet4"], seeds=[0], blocks=[2], subset=500)
    assert small.note == (
        "cut down: 8 of 200 epochs, 1 of 3 networks, 1 of 3 seeds, M = 2 instead of 8, "
        "only the first 500 training samples"
    )
    assert {(run.spec.epochs, run.spec.subset, run.spec.model) for run in small.runs()} == {(8, 500, "lenet4")}
    assert len(small.runs()) == 6


def test_the_whole_experiment_carries_no_note_and_more_seeds_are_no_cut() -> None:
    whole = EXPERIMENTS["outliers"]
    assert cut_down(whole) == whole
    assert whole.note == ""
    assert cut_down(whole, seeds=range(5)).note == ""


def test_cutting_down_twice_keeps_both_notes() -> None:
    twice = cut_down(cut_down(EXPERIMENTS["blocks"], epochs=8), models=["vgg19"])
    assert twice.note == "cut down: 8 of 200 epochs, 1 of 3 networks"


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        ({"epochs": 201}, "at most the 200 of outliers, got 201"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"arms": ["BCSC M=3"]}, "The arm must be one of SGD, BCSC M=2, BCSC M=4, BCSC M=8, got 'BCSC M=3'"),
        ({"conditions": ["none"]}, "The condition must be one of no outliers, 5 % outliers"),
        ({"blocks": [1]}, "one block is SGD"),
        ({"seeds": [-1]}, "seed must be a whole number of at least 0"),
        ({"subset": 0}, "subset must be a whole number of at least 1"),
    ],
)
def test_a_cut_that_makes_no_sense_is_refused(cut: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        cut_down(EXPERIMENTS["outliers"], **cut).runs()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arm", "cut", "message"),
    [
        ({"epochs": 80}, {"epochs": 2}, "epochs cannot be cut down: 'Mine' has epochs of its own"),
        ({"epochs": (80, 90)}, {"epochs": 2}, "epochs cannot be cut down"),
        ({"subset": 500}, {"subset": 100}, "subset cannot be cut down: 'Mine' has subset of its own"),
        ({"method": "bcsc"}, {"blocks": [2]}, "blocks do not reach 'Mine', which has the recipe's"),
    ],
)
def test_a_cut_that_would_not_reach_an_arm_is_refused(arm: dict, cut: dict, message: str) -> None:
    experiment = replace(EXPERIMENTS["outliers"], arms=(Arm("Mine", arm), Arm("SGD", {"method": "sgd"})))
    with pytest.raises(InvalidArgumentError, match=message):
        cut_down(experiment, **cut)
    other = {"subset": 100} if "epochs" in cut else {"epochs": 2}
    assert {getattr(run.spec, *other) for run in cut_down(experiment, **other).runs()} == {*other.values()}


def test_a_sweep_in_the_recipe_is_not_cut_down_either() -> None:
    experiment = replace(EXPERIMENTS["outliers"], conditions=(Condition("", {"epochs": (10, 20)}),))
    with pytest.raises(InvalidArgumentError, match="the recipe has several epochs"):
        cut_down(experiment, epochs=2)


def test_multiples_of_the_recipes_epochs_are_cut_down_with_them() -> None:
    assert {run.spec.epochs for run in cut_down(EXPERIMENTS["compute"], epochs=2).runs()} == {2, 16}


CUTS = st.fixed_dictionaries(
    {},
    optional={
        "models": st.lists(st.sampled_from(["lenet4", "vgg19", "resnet18"]), min_size=1, unique=True),
        "seeds": st.lists(st.integers(0, 4), min_size=1, unique=True),
        "blocks": st.lists(st.sampled_from([2, 4, 8, 16]), min_size=1, unique=True),
        "conditions": st.lists(st.sampled_from(["no outliers", "15 % outliers"]), min_size=1, unique=True),
        "arms": st.just(["SGD"]),
    },
)


@given(CUTS, CUTS)
def test_joined_cuts_leave_all_that_either_leaves(earlier: dict, later: dict) -> None:
    whole = EXPERIMENTS["outliers"]
    joined = cut_down(whole, epochs=2, **joined_cut(whole, earlier, later))
    names = {run.name for cut in (earlier, later) for run in cut_down(whole, epochs=2, **cut).runs()}
    assert names <= {run.name for run in joined.runs()}
    assert joined_cut(whole, earlier, earlier) == joined_cut(whole, joined_cut(whole, earlier, earlier), earlier)
    assert {run.name for run in cut_down(whole, epochs=2, **joined_cut(whole, earlier, earlier)).runs()} == {
        run.name for run in cut_down(whole, epochs=2, **earlier).runs()
    }


def test_the_numbers_of_the_paper_are_found_by_cell_and_period() -> None:
    numbers = paper_numbers(EXPERIMENTS["outliers"])
    assert numbers[Cell("lenet4", "15 % outliers", "BCSC M=8", 8), "all"] == 73.21
    assert paper_numbers(EXPERIMENTS["blocks"]) == {}


def test_other_numbers_of_blocks_have_no_number_in_the_paper() -> None:
    numbers = paper_numbers(cut_down(EXPERIMENTS["cifar10"], blocks=[4]))
    assert {cell.arm for cell, _ in numbers} == {"AdaGrad", "AdaDelta", "SGD"}
    assert {period for _, period in numbers} == set(PERIODS)
