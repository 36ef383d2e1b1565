"""Every claim can hold, fail and stay open; the numbers decide, and no verdict reaches further than its runs."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.choices import Measure, Period
from bcsc.data.registry import SOURCES
from bcsc.experiments.catalog import EXPERIMENTS, cut_down
from bcsc.experiments.experiment import NUM_CLASSES, PERIODS
from bcsc.experiments.planning.plan_file import experiment_from_toml
from bcsc.experiments.planning.sayings import read_saying
from bcsc.experiments.study import Study, read_studies, study_of
from bcsc.reports.claims import CLAIMS, Verdict, cases_of, claims_of_the_catalog, judge
from bcsc.reports.judging.cases import T_95, Case, paired
from bcsc.reports.page import runs_behind
from bcsc.runs.record import RunRecord
from bcsc.runs.spec import RunSpec
from tests.run_folders import finished_record, study_in_memory, write_study

CUT = {"epochs": 2}
OVER_SGD = [claim for claim in CLAIMS if claim.name == "bcsc-over-sgd"]
VALUES = st.lists(st.floats(-50, 50), min_size=0, max_size=14).map(tuple)


def luck(spec: RunSpec) -> float:
    return 0.01 * spec.seed * (len(spec.method) * len(spec.outliers) + spec.blocks)


def as_claimed(spec: RunSpec, _epoch: int) -> float:
    """BCSC over all others, rising with M, untouched by outliers, which take ten points from SGD."""
    outliers = 10.0 if spec.outliers == "symmetric:0.15" and spec.method == "sgd" else 0.0
    bonus = 5.0 if spec.method == "bcsc" else 0.0
    return 50.0 + 2.0 * spec.blocks + bonus - outliers + luck(spec)


def otherwise(spec: RunSpec, epoch: int) -> float:
    """The other way round, and outliers harm BCSC alone."""
    harm = 10.0 if spec.outliers == "symmetric:0.15" and spec.method == "bcsc" else 0.0
    return 150.0 - as_claimed(spec, epoch) - harm - (20.0 if spec.outliers != "none" else 0.0)


def all_alike(spec: RunSpec, _epoch: int) -> float:
    """Nothing but luck; with outliers all fall by the one point that is the bound of "hardly"."""
    return 70.0 - (spec.outliers == "symmetric:0.15") + (-1.0) ** (spec.seed + len(spec.method) + spec.blocks)


def verdicts(accuracy: Callable[[RunSpec, int], float], **cut: object) -> dict[str, Verdict]:
    found = judge(CLAIMS, [study_in_memory(name, accuracy, **cut) for name in EXPERIMENTS])
    return {verdict.claim.name: verdict for verdict in found}


def verdicts_on(study: Study) -> dict[str, Verdict]:
    return {verdict.claim.name: verdict for verdict in judge(CLAIMS, [study])}


def only_rule(name: str, study: Study) -> tuple[Case, ...]:
    claim = next(claim for claim in CLAIMS if claim.name == name)
    return judge([claim], [study])[0].cases


def said(sentence: str, study: Study, period: str = "final") -> list[Case]:
    """What becomes of a sentence in a study."""
    return cases_of(study, read_saying(sentence, [*study.arm_labels, *study.arm_labels.values()], [period]))


@pytest.mark.parametrize(
    ("accuracy", "whole", "cut_down"),
    [
        (as_claimed, "holds", "holds so far"),
        (otherwise, "does not hold", "does not hold so far"),
        (all_alike, "not decided", "not decided"),
    ],
)
def test_every_claim_can_hold_fail_and_stay_open_and_a_cut_down_one_says_so(
    accuracy: Callable[[RunSpec, int], float], whole: str, cut_down: str
) -> None:
    assert {name: v.state for name, v in verdicts(accuracy).items()} == {claim.name: whole for claim in CLAIMS}
    assert {name: v.state for name, v in verdicts(accuracy, **CUT).items()} == {c.name: cut_down for c in CLAIMS}


def test_one_seed_decides_nothing_but_is_shown() -> None:
    found = verdicts(as_claimed, epochs=2, seeds=[0])
    assert {verdict.state for verdict in found.values()} == {"not decided"}
    case = found["bcsc-over-sgd"].cases[0]
    assert case.label == "cifar10, LeNet4: BCSC M=8 over SGD, all"
    assert case.numbers == "+19.00 (1 seed)"
    assert case.interval == ""
    assert case.caveat == "cut down: 2 of 200 epochs, 1 of 3 seeds"


def test_a_verdict_names_the_networks_epochs_and_seeds_it_reaches() -> None:
    whole = study_in_memory("blocks", as_claimed)
    part = study_in_memory("blocks", as_claimed, epochs=2, models=["lenet4"], blocks=[2], subset=100)
    sentences = {v.sentence for v in judge(CLAIMS, [whole]) + judge(CLAIMS, [part]) if v.cases}
    assert sentences == {
        "holds in 3 networks, at 200 epochs, with 3 seeds",
        "holds so far in 1 of 3 networks, at 2 of 200 epochs, with 3 seeds, M = 2 instead of 2, 4, 8, 16, "
        "only the first 100 training samples",
    }


def test_a_verdict_on_several_experiments_is_one_so_far_until_it_has_them_all() -> None:
    names = ("cifar10", "cifar10-deep", "cifar100")
    studies = [study_in_memory(name, as_claimed) for name in names]
    assert judge(OVER_SGD, studies)[0].sentence == (
        "holds in 3 networks, at 200 epochs, with 3 seeds of cifar10; in 2 networks, at 200 epochs, with 3 seeds of "
        "cifar10-deep; in 10 networks, at 200 epochs, with 3 seeds of cifar100"
    )
    assert judge(OVER_SGD, studies[1:2])[0].sentence == (
        "holds so far in 2 networks, at 200 epochs, with 3 seeds of cifar10-deep; no runs of cifar10, cifar100"
    )


def test_the_cases_of_a_claim_on_several_experiments_say_which_they_are_of() -> None:
    names = ("cifar10", "cifar10-deep", "cifar100")
    labels = [case.label for case in judge(OVER_SGD, [study_in_memory(name, as_claimed) for name in names])[0].cases]
    assert [label for label in labels if label.split(", ")[0] not in names] == []
    assert len(set(labels)) == len(labels)


def test_of_several_studies_of_one_experiment_the_one_with_the_most_finished_runs_speaks() -> None:
    many, one = study_in_memory("blocks", as_claimed, epochs=20), study_in_memory("blocks", otherwise, seeds=[0])
    for studies in ([many, one], [one, many]):
        verdict = next(v for v in judge(CLAIMS, studies) if v.cases)
        assert verdict.sentence == "holds so far in 3 networks, at 20 of 200 epochs, with 3 seeds"


def test_runs_that_are_still_missing_make_a_verdict_one_so_far() -> None:
    study = study_in_memory("blocks", as_claimed)
    cell, runs = next(iter(study.runs.items()))
    verdict = next(v for v in judge(CLAIMS, [replace(study, runs={**study.runs, cell: runs[:2]})]) if v.cases)
    assert verdict.sentence == ("holds so far in 3 networks, at 200 epochs, with 3 seeds, 44 of 45 runs finished")


@pytest.mark.parametrize(
    ("name", "data", "guessing"),
    [("cifar10", "cifar10", 11.79), ("cifar10", "cifar10", 9.0), ("cifar100", "cifar100", 2.97)],
)
def test_an_arm_that_guesses_decides_nothing_and_is_named(name: str, data: str, guessing: float) -> None:
    def accuracy(spec: RunSpec, epoch: int) -> float:
        return guessing if spec.method == "sgd" else as_claimed(spec, epoch)

    case = only_rule("bcsc-over-sgd", study_in_memory(name, accuracy, **CUT))[0]
    assert case.state == "not decided"
    assert f"SGD is at chance level: {guessing:.2f} % with {NUM_CLASSES[data]} classes" in case.numbers


def test_a_verdict_stands_on_the_runs_of_the_study_that_speaks(tmp_path: Path) -> None:
    for folder, seeds in (("a", [0, 1]), ("b", [0])):
        write_study(tmp_path / folder, "blocks", epochs=2, seeds=seeds, models=["lenet4"], blocks=[2, 8])
    verdict = {verdict.claim.name: verdict for verdict in judge(CLAIMS, read_studies(tmp_path)[0])}["rises-with-m"]
    behind = runs_behind(verdict)
    assert len(behind) == 3 * 2  # SGD has one block
    assert {folder.relative_to(tmp_path).parts[0] for folder in behind} == {"a"}


def test_an_arm_without_an_m_is_compared_with_every_m() -> None:
    study = study_in_memory("blocks", otherwise, epochs=4, models=["lenet4"], blocks=[2, 8])
    cases = said("SGD over BCSC M={M}", study)
    assert [case.label for case in cases] == [f"LeNet4: SGD over BCSC M={blocks}, final" for blocks in (2, 8)]
    assert {case.state for case in cases} == {"holds"}


@pytest.mark.parametrize("period", PERIODS)
def test_averages_over_other_numbers_of_epochs_decide_nothing(period: str) -> None:
    study = study_in_memory("compute", as_claimed, epochs=4)
    for case in said("BCSC M={M} over SGD, rate/{M}, {M}x epochs", study, period):
        words = "averages over 4 and 32 epochs are of other moments"
        assert case.undecidable == (() if period == "final" else (words,))
        assert (case.state == "not decided") == (period != "final")
    assert {case.state for case in only_rule("left-at-equal-compute", study)} == {"holds"}
    same = study_in_memory("cifar10", as_claimed, epochs=4)
    assert not any(case.undecidable for case in said("BCSC M={M} over SGD", same, period))


@pytest.mark.parametrize(("name", "learned"), [("cifar10", 11.81), ("cifar100", 2.99)])
def test_an_arm_that_is_a_little_better_than_guessing_counts(name: str, learned: float) -> None:
    def accuracy(spec: RunSpec, epoch: int) -> float:
        return learned if spec.method == "sgd" else as_claimed(spec, epoch)

    case = only_rule("bcsc-over-sgd", study_in_memory(name, accuracy, **CUT))[0]
    assert case.state == "holds"
    assert not case.undecidable


def test_a_guessing_arm_is_neither_steady_nor_rising() -> None:
    steady = only_rule("robust-to-outliers", study_in_memory("outliers", lambda _spec, _epoch: 10.0, **CUT))
    rising = only_rule("rises-with-m", study_in_memory("blocks", lambda spec, _epoch: 9.0 + spec.blocks, **CUT))
    assert {case.state for case in (*steady, *rising)} == {"not decided"}


def without(study: Study, method: str, seeds: set[int]) -> Study:
    """The study, in which the runs of a method at some seeds diverged."""

    def ended(run: RunRecord) -> RunRecord:
        if run.spec.method != method or run.spec.seed not in seeds:
            return run
        return replace(run, summary=replace(run.summary, state="diverged", test_accuracy=None))

    return replace(study, runs={cell: tuple(map(ended, runs)) for cell, runs in study.runs.items()})


@pytest.mark.parametrize("seeds", [{1}, {0, 1, 2}])
@pytest.mark.parametrize("method", ["sgd", "bcsc"])
def test_an_arm_that_diverged_at_a_seed_decides_nothing_and_is_named(method: str, seeds: set[int]) -> None:
    study = without(study_in_memory("cifar100", as_claimed, **CUT), method, seeds)
    case = only_rule("bcsc-over-sgd", study)[0]
    arm = {"sgd": "SGD", "bcsc": "BCSC M=2"}[method]
    assert case.state == "not decided"
    assert len(case.values) == 3 - len(seeds)
    assert case.numbers.endswith(f"; {arm} diverged at {len(seeds)} of 3 seeds")
    assert case.numbers.startswith("no seed that all have finished; ") == (len(seeds) == 3)


def test_a_fall_of_an_arm_that_diverged_says_where_it_did_and_how_often() -> None:
    study = without(study_in_memory("outliers", as_claimed, seeds=[0, 1], epochs=2), "sgd", {0})
    (case,) = (case for case in only_rule("robust-to-outliers", study) if "SGD" in case.label)
    words = case.numbers.split("; ")
    assert words[1:] == [f"SGD diverged at 1 of 2 seeds with {rate} outliers" for rate in ("no", "15 %")]


def test_the_number_of_classes_is_that_of_the_data_sets() -> None:
    assert {name: SOURCES[name].num_classes for name in NUM_CLASSES} == NUM_CLASSES
    assert {run.spec.data for experiment in EXPERIMENTS.values() for run in experiment.runs()} <= set(NUM_CLASSES)


def test_every_claim_looks_at_experiments_of_the_catalog_and_every_experiment_is_looked_at() -> None:
    assert {name for claim in CLAIMS for name in claim.rules} == set(EXPERIMENTS)


def test_a_claim_without_runs_is_not_decided_and_has_no_cases() -> None:
    assert all(verdict.sentence == "not decided" and not verdict.cases for verdict in judge(CLAIMS, []))


def test_one_failing_case_sinks_a_claim_and_one_open_case_keeps_it_open() -> None:
    good, open_, bad = (Case("", values, "") for values in ((1.0, 1.1), (1.0, -1.0), (-1.0, -1.1)))
    states = [Verdict(CLAIMS[0], cases).state for cases in ((good, good), (good, open_), (good, open_, bad))]
    assert states == ["holds", "not decided", "does not hold"]


def test_the_interval_is_students_t_over_the_seeds_and_says_so() -> None:
    case = Case("", (1.0, 2.0, 3.0), "")
    assert case.margin == pytest.approx(4.303 * 1.0 / 3**0.5)
    assert case.numbers == "+2.00 ± 2.48 (3 seeds)"
    assert case.interval == "95 % t interval over 3 paired seeds"
    assert case.state == "not decided"


def share_outside(t: float, degrees: int) -> float:
    """The probability that Student's t lies outside -t .. t: the integral of its density, by Simpson's rule."""
    constant = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))
    steps = 4000
    weights = (1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1))
    densities = ((1 + (t * i / steps) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(steps + 1))
    return 1 - 2 * constant * t / steps / 3 * sum(w * d for w, d in zip(weights, densities, strict=True))


def quantile_used(num_seeds: int) -> float:
    """What the margin multiplies the standard error with."""
    values = tuple(float(i % 2) for i in range(num_seeds))
    deviation = math.sqrt(sum((v - sum(values) / num_seeds) ** 2 for v in values) / (num_seeds - 1))
    return Case("", values, "").margin / (deviation / math.sqrt(num_seeds))


@pytest.mark.parametrize("degrees", range(1, 31))
def test_an_interval_misses_the_truth_once_in_twenty_or_less(degrees: int) -> None:
    outside = share_outside(quantile_used(degrees + 1), degrees)
    if degrees <= len(T_95):
        assert outside == pytest.approx(0.05, abs=5e-5)
    else:
        assert outside < 0.05


@given(VALUES, st.sampled_from(("above", "below")), st.floats(-5, 5))
def test_a_case_and_its_mirror_image_never_both_hold_and_fail_where_the_other_holds(
    values: tuple[float, ...], side: str, bound: float
) -> None:
    """What lies above a bound is what, seen from the other side, does not lie below it."""
    other = {"above": "below", "below": "above"}[side]
    swapped = {"holds": "does not hold", "does not hold": "holds", "not decided": "not decided"}
    case, mirror = Case("", values, "", side, bound), Case("", values, "", other, bound)  # type: ignore[arg-type]
    assert mirror.state == swapped[case.state]
    if len(values) < 2:
        assert case.state == "not decided"


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=6).map(tuple), st.floats(0.01, 0.99), st.booleans())
def test_a_mean_within_its_interval_of_the_bound_is_not_decided(
    values: tuple[float, ...], share: float, is_below: bool
) -> None:
    mean, margin = math.fsum(values) / len(values), Case("", values, "").margin
    bound = mean + (share if is_below else -share) * margin
    assert Case("", values, "", bound=bound).state == "not decided" or margin < 1e-9


def test_a_bound_can_be_claimed_from_below() -> None:
    falls = (0.5, 0.6, 0.4)
    assert Case("", falls, "", "below", 1.0).state == "holds"
    assert Case("", falls, "", "above", 1.0).state == "does not hold"


def test_seeds_are_paired_so_what_is_common_to_both_arms_does_not_blur_the_difference() -> None:
    def accuracy(spec: RunSpec, _epoch: int) -> float:
        return 50.0 + 10.0 * spec.seed + (spec.method == "bcsc") * (1 + 0.001 * spec.seed)

    cases = only_rule("bcsc-over-sgd", study_in_memory("cifar10-deep", accuracy, **CUT))
    assert {case.state for case in cases} == {"holds"}
    assert {case.numbers for case in cases} == {"+1.00 ± 0.00 (3 seeds)"}


def test_arms_are_compared_in_the_same_network_and_condition_only() -> None:
    """Each place is so much easier than the last that any comparison across places would show another gain."""
    easier = {f"symmetric:{rate}": 100.0 * rate for rate in (0.05, 0.1, 0.15)}

    def accuracy(spec: RunSpec, _epoch: int) -> float:
        return 30.0 + easier.get(spec.outliers, 0.0) + (spec.method == "bcsc") * spec.blocks

    study = study_in_memory("outliers", accuracy, **CUT)
    cases = said("BCSC M={M} over SGD", study)
    assert [case.values for case in cases] == [pytest.approx((m,) * 3) for _ in range(4) for m in (2, 4, 8)]
    assert len({case.label for case in cases}) == 4 * 3


def test_arms_with_blocks_are_compared_m_for_m_unless_they_are_called_by_their_own_labels() -> None:
    study = study_in_memory("cifar10", as_claimed, blocks=[2, 4], models=["lenet4"], **CUT)
    labels = [case.label for case in said("BCSC M={M} over SBC M={M} and SGD", study)]
    assert labels == [
        "LeNet4: BCSC M=2 over SBC M=2, final",
        "LeNet4: BCSC M=2 over SGD, final",
        "LeNet4: BCSC M=4 over SBC M=4, final",
        "LeNet4: BCSC M=4 over SGD, final",
    ]
    assert [case.label for case in said("BCSC M=4 over BCSC M=2", study)] == ["LeNet4: BCSC M=4 over BCSC M=2, final"]


def test_what_is_said_of_an_arm_that_was_left_out_stays_open() -> None:
    study = study_in_memory("outliers", as_claimed, arms=["SGD"], **CUT)
    verdict = next(v for v in judge(CLAIMS, [study]) if v.cases)
    assert [case.state for case in verdict.cases] == ["holds", "not decided"]
    assert verdict.cases[1].label == "BCSC M=8: left out of this study"
    (case,) = said("BCSC M={M} over SGD", study)
    assert case.label == "BCSC M over SGD: left out of this study"
    (case,) = of_measure("BCSC M={M} below SGD", study, "train_loss")
    assert (case.label, case.unit) == ("BCSC M below SGD: left out of this study", "training loss")
    (case,) = said("BCSC M={M} falls by more than SGD", study)
    assert case.label == "BCSC M falls by more than SGD: left out of this study"
    one_m = study_in_memory("blocks", as_claimed, arms=["BCSC M=8"], **CUT)
    assert [case.state for case in only_rule("rises-with-m", one_m)] == ["not decided"]


def test_seeds_that_agree_to_the_last_digit_decide_nothing() -> None:
    for values in [(0.28, 0.28), (-5.0,) * 3, (0.0, 0.0)]:
        case = Case("", values, "")
        assert (case.margin, case.state) == (0, "not decided")
    assert Case("", (0.28, 0.29), "").state == "holds"


def test_a_rise_on_the_whole_with_a_fall_on_the_way_is_none() -> None:
    """From SGD to two blocks it leaps, and then falls with every doubling: the line alone would slope up."""
    heights = {1: 40.0, 2: 60.0, 4: 58.0, 8: 56.0}

    def accuracy(spec: RunSpec, _epoch: int) -> float:
        return heights[spec.blocks] + luck(spec)

    study = study_in_memory("blocks", accuracy, blocks=[2, 4, 8], models=["lenet4"], **CUT)
    assert [(case.label, case.state) for case in only_rule("rises-with-m", study)] == [
        ("LeNet4: per doubling of M, from 1 to 8, all", "holds"),
        ("LeNet4: BCSC M=4 over BCSC M=2, all", "does not hold"),
        ("LeNet4: BCSC M=8 over BCSC M=4, all", "does not hold"),
    ]
    assert verdicts_on(study)["rises-with-m"].state == "does not hold so far"


def test_a_study_that_another_of_its_experiment_silences_is_named(tmp_path: Path) -> None:
    studies = [
        replace(study_in_memory("cifar10-deep", as_claimed, epochs=epochs, seeds=seeds), folder=tmp_path / name)
        for name, epochs, seeds in [("short", 2, None), ("long", 200, [0])]
    ]
    words = "; not counted, as it has fewer runs: long"
    assert judge(OVER_SGD, studies)[0].scope.endswith(words)
    assert "not counted" not in judge(OVER_SGD, studies[:1])[0].scope


def test_a_case_names_the_cells_its_numbers_are_from() -> None:
    case = said("BCSC M={M} over SGD", study_in_memory("cifar10-deep", as_claimed, **CUT))[0]
    assert [cell.arm for cell in case.cells] == ["BCSC M=8", "SGD"]


def test_rising_with_blocks_is_measured_in_points_per_doubling_and_in_each_place_by_itself() -> None:
    def accuracy(spec: RunSpec, _epoch: int) -> float:
        return 50.0 + len(spec.model) * (spec.blocks.bit_length() - 1)

    cases = only_rule("rises-with-m", study_in_memory("blocks", accuracy, **CUT))
    assert [case.label for case in cases] == [
        f"{network}: per doubling of M, from 1 to 16, all" for network in ("LeNet4", "VGG19", "ResNet18")
    ]
    for case, model in zip(cases, ("lenet4", "vgg19", "resnet18"), strict=True):
        assert case.values == pytest.approx((len(model),) * 3)


def test_the_claims_are_those_of_all_plans_and_share_what_they_have_in_common() -> None:
    assert claims_of_the_catalog() == CLAIMS
    planned = [(claim, experiment) for experiment in EXPERIMENTS.values() for claim in experiment.claims]
    assert sum(len(claim.rules) for claim in CLAIMS) == len(planned)
    by_name = {claim.name: claim for claim in CLAIMS}
    for claim, experiment in planned:
        assert by_name[claim.name].rules[experiment.name] == claim.sayings
        assert by_name[claim.name].statement


def test_a_cell_of_which_nothing_is_finished_has_no_seeds_to_pair() -> None:
    study = study_in_memory("blocks", as_claimed)
    known = next(iter(study.runs))
    assert paired(study, "test_accuracy", {known: 1.0, replace(known, arm="another"): -1.0}, "all") == ()


def test_studies_of_ones_own_are_judged_by_their_own_claims_each() -> None:
    studies = [study_in_memory(name, as_claimed, **CUT) for name in ("outliers", "blocks")]
    own = [replace(study, name=f"my-{study.name}", is_named=False) for study in studies]
    found = judge([], own)
    expected = [(claim.name, claim.statement, claim.source) for study in studies for claim in study.claims]
    assert [(v.claim.name, v.claim.statement, v.claim.source) for v in found] == expected
    assert len(expected) >= 2
    assert all(verdict.state == "holds so far" for verdict in found)


@pytest.mark.parametrize("words", ["less than 1 point", "more than 2.5 points"])
def test_a_fall_is_described_by_its_bound(words: str) -> None:
    study = study_in_memory("outliers", as_claimed, **CUT)
    conditions = [cell.condition for cell in study.runs]
    saying = replace(read_saying(f"SGD falls by {words}", ["SGD"], []), conditions=(conditions[0], conditions[-1]))
    assert [case.label for case in cases_of(study, saying)] == [f"LeNet4: SGD falls by {words}, all"]


def test_a_case_names_its_experiment_where_a_claim_is_made_of_two() -> None:
    claim = next(claim for claim in CLAIMS if claim.name == "bcsc-over-sgd")
    study = study_in_memory("cifar100", as_claimed, **CUT)
    for num_experiments in (1, 2):
        rules = {name: claim.rules[name] for name in ("cifar100", "cifar10")[:num_experiments]}
        (verdict,) = judge([replace(claim, rules=rules)], [study])
        assert all(case.label.startswith("cifar100, ") == (num_experiments == 2) for case in verdict.cases)


def of_measure(sentence: str, study: Study, measure: Measure, period: Period = "first_half") -> list[Case]:
    """What becomes of a sentence on another measure than the accuracy."""
    saying = read_saying(sentence, [*study.arm_labels, *study.arm_labels.values()], [period])
    return cases_of(study, replace(saying, measure=measure))


def test_a_claim_on_a_loss_is_judged_by_that_loss_over_its_period() -> None:
    study = study_in_memory("cifar10-deep", as_claimed, models=["googlenet"], epochs=3)
    (case,) = of_measure("BCSC M={M} below SGD", study, "train_loss")
    bcsc, sgd = (study.runs[cell] for cell in case.cells)
    losses = [[run.rows[0].train_loss + run.rows[1].train_loss for run in runs] for runs in (bcsc, sgd)]
    assert case.values == pytest.approx([(ours - theirs) / 2 for ours, theirs in zip(*losses, strict=True)])
    assert case.label == "GoogLeNet: BCSC M=8 below SGD, training loss, first half"
    assert (case.state, case.unit) == ("holds", "training loss")
    assert case.numbers.startswith(f"{fmean(case.values):+.4f} ± {case.margin:.4f} (3 seeds)")
    assert [each.state for each in of_measure("BCSC M={M} over SGD", study, "train_loss")] == ["does not hold"]


@pytest.mark.parametrize(("accuracy", "state"), [(as_claimed, "holds"), (otherwise, "does not hold")])
def test_a_loss_that_falls_with_blocks_has_a_line_that_slopes_down(
    accuracy: Callable[[RunSpec, int], float], state: str
) -> None:
    study = study_in_memory("blocks", accuracy, models=["lenet4"], blocks=[2, 8], **CUT)
    slope, *steps = of_measure("SGD and BCSC M={M} fall with M", study, "test_loss", "final")
    assert slope.label == "LeNet4: per doubling of M, from 1 to 8, test loss, final"
    assert slope.state == state
    assert (fmean(slope.values) < 0) == (state == "holds")
    others = [("BCSC M=2 below SGD", "does not hold"), ("BCSC M=8 below BCSC M=2", "does not hold")]
    assert [(step.label.removeprefix("LeNet4: ").removesuffix(", test loss, final"), step.state) for step in steps] == (
        others if state == "does not hold" else []
    )


def test_an_arm_that_falls_by_more_than_others_is_compared_with_each() -> None:
    lost = {"sgd": 7.0, 2: 3.0, 8: 1.0}

    def accuracy(spec: RunSpec, _epoch: int) -> float:
        corrupted = spec.outliers == "symmetric:0.15"
        return 60.0 - corrupted * lost[spec.method if spec.method == "sgd" else spec.blocks] + luck(spec)

    study = study_in_memory("outliers", accuracy, blocks=[2, 8], **CUT)
    cases = only_rule("less-sensitive-to-outliers", study)
    assert [case.label for case in cases] == [f"LeNet4: SGD falls by more than BCSC M={m}, all" for m in (2, 8)]
    assert [round(fmean(case.values)) for case in cases] == [4, 6]
    assert [{cell.condition for cell in case.cells} for case in cases] == [{"no outliers", "15 % outliers"}] * 2


def test_a_measurement_that_is_no_number_decides_nothing() -> None:
    study = study_in_memory("cifar10-deep", as_claimed, models=["googlenet"], **CUT)
    cell, (first, *rest) = next(iter(study.runs.items()))
    broken = replace(first, rows=(first.rows[0]._replace(train_loss=math.inf), *first.rows[1:]))
    study = replace(study, runs={**study.runs, cell: (broken, *rest)})
    (case,) = of_measure("BCSC M={M} below SGD", study, "train_loss")
    assert (case.values, case.state) == ((), "not decided")
    assert "the training loss is not a number at every seed" in case.numbers


def test_of_two_arms_that_rise_each_has_a_line_of_its_own() -> None:
    heights = {"bcsc": 70.0, "rbc": 50.0, "sgd": 40.0}

    def accuracy(spec: RunSpec, _epoch: int) -> float:
        return heights[spec.method] + 3.0 * math.log2(spec.blocks) - 5.0 * (spec.lr == 0.1) + luck(spec)

    text = """recipe = { data = "cifar10", epochs = 2 }
arm = [
    { label = "SGD {lr}", method = "sgd", lr = [0.05, 0.1] },
    { label = "BCSC M={M}", method = "bcsc", blocks = [2, 4] },
    { label = "RBC M={M}", method = "rbc", blocks = [2, 4] },
]"""
    experiment = experiment_from_toml(text, "mine", "mine.toml")
    study = study_of(experiment, [finished_record(run.spec, accuracy) for run in experiment.runs()])
    together = said("SGD {lr} and BCSC M={M} and RBC M={M} rise with M", study)
    alone = [case for arm in ("BCSC", "RBC") for case in said(f"SGD {{lr}} and {arm} M={{M}} rise with M", study)]
    assert [(case.values, case.state) for case in together] == [(case.values, case.state) for case in alone]
    assert [case.state for case in together] == ["holds", "holds"]


def test_a_claim_names_the_m_that_was_run_not_the_one_that_was_planned() -> None:
    text = """recipe = { data = "cifar10", epochs = 2 }
arm = [{ label = "SGD", method = "sgd" }, { label = "BCSC M={M}", method = "bcsc", blocks = [2] }]
claim = [{ says = "BCSC M={M} over SGD" }]"""
    planned = experiment_from_toml(text, "mine", "mine.toml")
    for blocks, statement in (
        (None, "BCSC M=2 over SGD."),
        ([3], "BCSC M=3 over SGD."),
        ([2, 3], "BCSC M={M} over SGD."),
    ):
        experiment = cut_down(planned, blocks=blocks)
        study = study_of(experiment, [finished_record(run.spec, as_claimed) for run in experiment.runs()])
        (verdict,) = judge([], [study])
        assert verdict.claim.statement == statement
