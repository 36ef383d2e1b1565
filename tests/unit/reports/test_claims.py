"""Every claim can hold, fail and stay open; the numbers decide, and one seed decides nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bcsc.experiments.catalog import EXPERIMENTS
from bcsc.experiments.study import read_studies
from bcsc.reports.claims import CLAIMS, Case, Verdict, judge
from bcsc.runs.spec import RunSpec
from tests.run_folders import write_study

CUT = {"epochs": 2, "seeds": [0, 1, 2]}


def luck(spec: RunSpec) -> float:
    return 0.01 * spec.seed * len(spec.method)


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


def verdicts(root: Path, accuracy: Callable[[RunSpec, int], float], **cut: object) -> list[Verdict]:
    for name in EXPERIMENTS:
        write_study(root / name, name, accuracy=accuracy, **{**CUT, **cut})
    return judge(CLAIMS, read_studies(root)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accuracy", "state"), [(as_claimed, "holds"), (otherwise, "does not hold"), (all_alike, "not decided")]
)
def test_every_claim_can_hold_fail_and_stay_open(
    tmp_path: Path, accuracy: Callable[[RunSpec, int], float], state: str
) -> None:
    found = {verdict.claim.name: verdict.state for verdict in verdicts(tmp_path, accuracy)}
    assert found == {claim.name: state for claim in CLAIMS}


@pytest.mark.slow
def test_one_seed_decides_nothing_but_is_shown(tmp_path: Path) -> None:
    found = verdicts(tmp_path, as_claimed, seeds=[0])
    assert {verdict.state for verdict in found} == {"not decided"}
    case = next(verdict for verdict in found if verdict.claim.name == "bcsc-over-sgd").cases[0]
    assert case.label == "LeNet4: BCSC M=8 over SGD, all"
    assert case.numbers == "+19.00 (1 seed)"
    assert case.caveat == "cut down: 2 of 200 epochs, 1 of 3 seeds"


def test_every_claim_looks_at_experiments_of_the_catalog_and_every_experiment_is_looked_at() -> None:
    assert {name for claim in CLAIMS for name in claim.rules} == set(EXPERIMENTS)


def test_a_claim_without_runs_is_not_decided_and_has_no_cases() -> None:
    assert all(verdict.state == "not decided" and not verdict.cases for verdict in judge(CLAIMS, []))


def test_one_failing_case_sinks_a_claim_and_one_open_case_keeps_it_open() -> None:
    good, open_, bad = (Case("", values, "") for values in ((1.0, 1.1), (1.0, -1.0), (-1.0, -1.1)))
    states = [Verdict(CLAIMS[0], cases).state for cases in ((good, good), (good, open_), (good, open_, bad))]
    assert states == ["holds", "not decided", "does not hold"]


def test_the_interval_is_students_t_over_the_seeds() -> None:
    case = Case("", (1.0, 2.0, 3.0), "")
    assert case.margin == pytest.approx(4.303 * 1.0 / 3**0.5)
    assert case.numbers == "+2.00 ± 2.48 (3 seeds)"
    assert case.state == "not decided"


def test_a_bound_can_be_claimed_from_below() -> None:
    falls = (0.5, 0.6, 0.4)
    assert Case("", falls, "", "below", 1.0).state == "holds"
    assert Case("", falls, "", "above", 1.0).state == "does not hold"


def test_seeds_are_paired_so_what_is_common_to_both_arms_does_not_blur_the_difference(tmp_path: Path) -> None:
    def accuracy(spec: RunSpec, _epoch: int) -> float:
        return 50.0 + 10.0 * spec.seed + (spec.method == "bcsc")

    write_study(tmp_path, "cifar10-deep", accuracy=accuracy, **CUT)
    verdict = judge(CLAIMS, read_studies(tmp_path)[0])[0]
    assert verdict.state == "holds"
    assert {case.numbers for case in verdict.cases} == {"+1.00 ± 0.00 (3 seeds)"}


def test_rising_with_blocks_is_measured_in_points_per_doubling(tmp_path: Path) -> None:
    def accuracy(spec: RunSpec, _epoch: int) -> float:
        return 50.0 + 1.5 * (spec.blocks.bit_length() - 1)

    write_study(tmp_path, "blocks", accuracy=accuracy, models=["lenet4"], **CUT)
    verdict = next(v for v in judge(CLAIMS, read_studies(tmp_path)[0]) if v.claim.name == "rises-with-m")
    assert [case.label for case in verdict.cases] == ["LeNet4: points per doubling of M"]
    assert verdict.cases[0].values == pytest.approx((1.5, 1.5, 1.5))
