"""What the README says was measured is what the records say, and one click away from them."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean

import pytest

from bcsc.experiments.catalog import EXPERIMENTS, paper_numbers
from bcsc.experiments.study import read_studies
from bcsc.reports.claims import CLAIMS, judge
from bcsc.reports.judging.cases import Case
from bcsc.runs.spec import spec_from_toml

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_its_snippet_is_the_quickstart() -> None:
    quickstart = (ROOT / "examples" / "quickstart.py").read_text()
    for line in (
        "base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)",
        "optimizer = bcsc.BlockCyclic(base, num_blocks=8, seed=0)",
        "batches = bcsc.BlockCyclicSampler(len(dataset), batch_size=128, num_blocks=8, seed=0)",
        "loader = DataLoader(dataset, batch_sampler=batches)",
    ):
        assert line in README
        assert line in quickstart


ROWS = {
    "SGD, 10 epochs": "cifar10-10-epochs/runs/lenet4-sgd-seed-{}",
    "RBC M = 8, 10 epochs": "cifar10-10-epochs/runs/lenet4-rbc-m-8-seed-{}",
    "SBC M = 8, 10 epochs": "cifar10-10-epochs/runs/lenet4-sbc-m-8-seed-{}",
    "BCSC M = 8, 10 epochs": "cifar10-10-epochs/runs/lenet4-bcsc-m-8-seed-{}",
    "SGD, 80 epochs": "compute-10-epochs/runs/lenet4-clean-sgd-rate-8-8x-epochs-seed-{}",
    "SGD, 200 epochs": "cifar10-200-epochs/runs/lenet4-sgd-seed-{}",
    "BCSC M = 8, 200 epochs": "cifar10-200-epochs/runs/lenet4-bcsc-m-8-seed-{}",
}


def cells_of_row(first: str) -> list[str]:
    """The other cells of the one row of a table that begins so."""
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {first} |")]
    return row.removesuffix(" |").split(" | ")[1:]


@pytest.mark.parametrize("row", ROWS)
def test_its_table_is_that_of_the_records_and_links_to_them(row: str) -> None:
    num_seeds = 1 if "200 epochs" in row else 3
    folders = {seed: f"records/{ROWS[row].format(seed)}" for seed in range(num_seeds)}
    summaries = [json.loads((ROOT / folder / "summary.json").read_text()) for folder in folders.values()]
    means = [fmean(summary["test_accuracy"][period] for summary in summaries) for period in ("all", "final")]
    passes = summaries[0]["gradient_evaluations"] // 50_000
    (rate,) = {spec_from_toml((ROOT / each / "run.toml").read_text(), each).learning_rate for each in folders.values()}
    links = " ".join(f"[{seed}]({folder})" for seed, folder in folders.items())
    assert cells_of_row(row) == [f"{rate:g}", f"{passes:,}", *(f"{mean:.2f}" for mean in means), links]


def accuracies(study: str, run: str, period: str = "final", seeds: int = 3) -> tuple[float, ...]:
    """Of every seed of an arm, none of which may be missing."""
    runs = [ROOT / "records" / study / f"{run}-seed-{seed}" for seed in range(seeds)]
    return tuple(json.loads((each / "summary.json").read_text())["test_accuracy"][period] for each in runs)


def mean(study: str, run: str, period: str = "final") -> str:
    return f"{fmean(accuracies(study, run, period)):.2f}"


def gain(study: str, run: str, other: str, period: str = "final") -> Case:
    """By how many points one arm is above another, seed by seed."""
    pairs = zip(accuracies(study, run, period), accuracies(study, other, period), strict=True)
    return Case("", tuple(ours - theirs for ours, theirs in pairs), "")


def points(case: Case, sign: str = "+") -> str:
    return f"{fmean(case.values):{sign}.2f} ± {case.margin:.2f}"


def tuned_ends() -> str:
    found = [
        ", ".join(mean("tuned-equal-compute/runs", f"lenet4-{condition}-{arm}") for arm in arms)
        for condition in ("clean", "15-wrong-labels")
        for arms in [("sgd", "bcsc-m-8", "sbc-m-8", "rbc-m-8")]
    ]
    gains = [
        points(gain("tuned-equal-compute/runs", f"lenet4-{condition}-bcsc-m-8", f"lenet4-{condition}-sgd"))
        for condition in ("clean", "15-wrong-labels")
    ]
    return (
        f"BCSC over SGD at the end {gains[0]}, with 15 % wrong labels {gains[1]}; "
        f"final with SGD, BCSC, SBC, RBC: {found[0]}; with 15 % wrong labels {found[1]}"
    )


def with_batch_norm() -> str:
    arms = ("mobilenet-sgd", "mobilenet-sgd-rate-2-2x-epochs")
    gains = [gain("batch-norm/runs", "mobilenet-bcsc-m-2", arm) for arm in arms]
    assert [case.state for case in gains] == ["holds", "not decided"]
    return f"BCSC over SGD at the end {points(gains[0])} by epoch, {points(gains[1])} at equal gradients"


def what_wrong_labels_cost() -> str:
    lost = [
        gain(f"{study}/runs", f"lenet4-{clean}-{arm}", f"lenet4-15-{wrong}-{arm}", period)
        for study, clean, wrong, period in (
            ("outliers-10-epochs", "no-outliers", "outliers", "all"),
            ("tuned-equal-compute", "clean", "wrong-labels", "final"),
        )
        for arm in ("sgd", "bcsc-m-8")
    ]
    assert [case.state for case in lost] == ["not decided", "holds", "holds", "holds"]
    words = [points(case, "") for case in lost]
    return (
        f"15 % wrong labels cost SGD {words[0]} points over all epochs, BCSC {words[1]}; "
        f"at equal gradients, at the end, {words[2]} and {words[3]}"
    )


def speed_and_spread() -> str:
    verdicts = {verdict.claim.name: verdict for verdict in judge(CLAIMS, read_studies(ROOT / "records")[0])}
    found = [
        next(case for case in verdicts[claim].cases if case.label.startswith("cifar10, LeNet4"))
        for claim in ("faster-than-sgd", "steadier-than-sgd")
    ]
    assert [case.state for case in found] == ["holds", "does not hold"]
    loss, spread = (f"{fmean(case.values):+.3f} ± {case.margin:.3f}" for case in found)
    return f"BCSC less SGD: training loss over the first half of the epochs {loss}, its spread over all {spread}"


def in_parallel() -> str:
    study = "cifar10-block-parallel"
    final = {arm: [accuracy_of(f"{study}/{arm}-{seed}") for seed in range(3)] for arm in ("sequential", "w-2", "w-4")}
    changes = [
        Case("", tuple(ours - alone for ours, alone in zip(final[arm], final["sequential"], strict=True)), "")
        for arm in ("w-2", "w-4")
    ]
    assert [case.state for case in changes] == ["not decided", "does not hold"]
    words = [points(case) for case in changes]
    return f"final accuracy against one step after the other: {words[0]} with two processes, {words[1]} with four"


def accuracy_of(run: str) -> float:
    accuracy: float = json.loads((ROOT / "records" / run / "summary.json").read_text())["test_accuracy"]["final"]
    return accuracy


def inside_adagrad() -> str:
    bcsc, sgd = (mean("adagrad-10-epochs/runs", f"lenet4-adagrad-{arm}") for arm in ("bcsc-m-8", "sgd"))
    return f"final {bcsc} with BCSC, {sgd} with SGD"


def with_dropout() -> str:
    study, rates = "dropout-10-epochs/runs", ("no", "5", "10", "15")
    gains = [gain(study, f"lenet4-{rate}-dropout-bcsc-m-8", f"lenet4-{rate}-dropout-sgd", "all") for rate in rates]
    assert [case.state for case in gains] == ["not decided", "not decided", "holds", "holds"]
    return f"gain over all epochs at 0, 5, 10 and 15 % dropout: {', '.join(points(case) for case in gains)}"


# By question: which section of docs/results.md the row leads to, and what was measured.
FINDINGS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "Is anything left at equal gradients, each method at its best rate?": ("tuned-equal-compute", tuned_ends),
    "And in a network with BatchNorm?": ("batch-norm", with_batch_norm),
    "Does BCSC converge faster, and more steadily?": ("faster-than-sgd", speed_and_spread),
    "Do wrong labels cost SGD more than BCSC?": ("outliers-10-epochs", what_wrong_labels_cost),
    "Do steps that several processes make at once keep the accuracy?": ("cifar10-block-parallel", in_parallel),
    "Does the gain persist inside AdaGrad?": ("adagrad-10-epochs", inside_adagrad),
    "Does it persist with dropout, on MNIST?": ("dropout-10-epochs", with_dropout),
}


@pytest.mark.parametrize("question", FINDINGS)
def test_its_findings_are_those_of_the_records_and_lead_to_them(question: str) -> None:
    section, measured = FINDINGS[question]
    answer, found = cells_of_row(question)
    assert found == measured()
    assert f"](docs/results.md#{section})" in answer
    assert f'<a id="{section}"></a>' in (ROOT / "docs" / "results.md").read_text()


def test_at_full_length_the_rows_are_as_near_to_the_papers_as_it_says() -> None:
    paper = {
        (cell.arm, period): value
        for (cell, period), value in paper_numbers(EXPERIMENTS["cifar10"]).items()
        if cell.model == "lenet4"
    }
    found = cells_of_row("Do the paper's own numbers come out at full length?")[1]
    numbers = re.fullmatch(r"SGD comes within (\d) points of the paper's row, BCSC M = 8 within (\d)", found)
    assert numbers is not None
    for run, arm, most in (("sgd", "SGD", numbers[1]), ("bcsc-m-8", "BCSC M=8", numbers[2])):
        for period in ("first_half", "last_half", "all", "final"):
            (ours,) = accuracies("cifar10-200-epochs/runs", f"lenet4-{run}", period, seeds=1)
            assert abs(ours - paper[arm, period]) < int(most)


def test_what_is_compared_at_equal_gradients_computed_as_many() -> None:
    for run in (ROOT / "records" / "tuned-equal-compute" / "runs").iterdir():
        evaluations = json.loads((run / "summary.json").read_text())["gradient_evaluations"]
        assert evaluations == pytest.approx(40 * 50_000, rel=1e-3)  # all batches of SBC are full ones


def test_rbc_ends_below_bcsc_as_it_says() -> None:
    for condition in ("clean", "15-wrong-labels"):
        arms = (f"lenet4-{condition}-{arm}-m-8" for arm in ("bcsc", "rbc"))
        assert gain("tuned-equal-compute/runs", *arms).state == "holds"
