"""What the README says was measured is what the records say, and one click away from them."""

import json
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

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
    accuracies = [[summary["test_accuracy"][period] for summary in summaries] for period in ("all", "final")]
    shown = [f"{fmean(each):.2f}" + (f" ± {stdev(each):.2f}" if num_seeds > 1 else "") for each in accuracies]
    passes = summaries[0]["gradient_evaluations"] // 50_000
    (rate,) = {spec_from_toml((ROOT / each / "run.toml").read_text(), each).learning_rate for each in folders.values()}
    links = " ".join(f"[{seed}]({folder})" for seed, folder in folders.items())
    assert cells_of_row(row) == [f"{rate:g}", f"{passes:,}", *shown, links]


def accuracies(study: str, run: str, period: str = "final", seeds: int = 3) -> tuple[float, ...]:
    """Of every seed of an arm, none of which may be missing."""
    name = run if study == "cifar10-block-parallel" else f"{run}-seed"
    runs = [ROOT / "records" / study / f"{name}-{seed}" for seed in range(seeds)]
    return tuple(json.loads((each / "summary.json").read_text())["test_accuracy"][period] for each in runs)


def mean(study: str, run: str, period: str = "final") -> str:
    return f"{fmean(accuracies(study, run, period)):.2f}"


def gain(study: str, run: str, other: str, period: str = "final") -> Case:
    """By how many points one arm is above another, seed by seed."""
    pairs = zip(accuracies(study, run, period), accuracies(study, other, period), strict=True)
    return Case("", tuple(ours - theirs for ours, theirs in pairs), "")


def points(case: Case, sign: str = "+") -> str:
    return f"{fmean(case.values):{sign}.2f} ± {case.margin:.2f}"


def with_more_blocks() -> str:
    means = [
        mean("blocks-10-epochs/runs", f"lenet4-{arm}", "all") for arm in ("sgd", "bcsc-m-2", "bcsc-m-4", "bcsc-m-8")
    ]
    rises = [float(more) - float(fewer) for fewer, more in pairwise(means)]
    assert rises == sorted(rises, reverse=True)
    (with_sixteen,) = accuracies("blocks-16", "m-16", "all", seeds=1)
    return (
        f"over all epochs, at a constant rate, with M = 1, 2, 4, 8: {', '.join(means)}; with M = 16 {with_sixteen:.2f}"
    )


def when_tuned(other: str) -> list[str]:
    arms = [f"lenet4-{condition}-{{}}" for condition in ("clean", "15-wrong-labels")]
    return [points(gain("tuned-equal-compute/runs", arm.format("bcsc-m-8"), arm.format(other))) for arm in arms]


def over_sgd_when_tuned() -> str:
    clean, wrong = when_tuned("sgd")
    return f"BCSC over SGD at the end {clean}, with 15 % wrong labels {wrong}"


def over_rbc_and_sbc_when_tuned() -> str:
    (rbc, rbc_wrong), (sbc, sbc_wrong) = when_tuned("rbc-m-8"), when_tuned("sbc-m-8")
    return f"BCSC over RBC at the end {rbc}, with 15 % wrong labels {rbc_wrong}; over SBC {sbc} and {sbc_wrong}"


def with_batch_norm() -> str:
    arms = ("sgd", "sgd-rate-2-2x-epochs")
    gains = [gain("batch-norm/runs", "mobilenet-bcsc-m-2", f"mobilenet-{arm}") for arm in arms]
    assert [case.state for case in gains] == ["holds", "not decided"]
    (with_blocks,) = accuracies("batch-norm/runs", "vgg19-bcsc-m-2", seeds=1)
    by_epoch, at_equal = (with_blocks - accuracies("batch-norm/runs", f"vgg19-{arm}", seeds=1)[0] for arm in arms)
    return (
        "BCSC over SGD at the end, by epoch and at equal gradient evaluations: "
        f"MobileNet {points(gains[0])} and {points(gains[1])}, VGG19 {by_epoch:+.2f} and {at_equal:+.2f}"
    )


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
        f"at equal gradient evaluations, at the end, {words[2]} and {words[3]}"
    )


def speed_and_spread() -> str:
    verdicts = {verdict.claim.name: verdict for verdict in judge(CLAIMS, read_studies(ROOT / "records")[0])}
    found = [
        next(case for case in verdicts[claim].cases if case.label.startswith("cifar10, LeNet4"))
        for claim in ("faster-than-sgd", "steadier-than-sgd")
    ]
    assert [case.state for case in found] == ["holds", "does not hold"]
    loss, spread = (f"{fmean(case.values):+.3f} ± {case.margin:.3f}" for case in found)
    long = [fmean(spreads_of(f"cifar10-200-epochs/runs/lenet4-{arm}-seed-0")) for arm in ("bcsc-m-8", "sgd")]
    assert long[0] < long[1]
    return (
        f"BCSC less SGD: training loss over the first half of the epochs {loss}, its spread over all {spread}; "
        f"its spread in 200 epochs {long[0] - long[1]:+.3f}"
    )


def spreads_of(run: str) -> list[float]:
    """Of the training loss, in every epoch."""
    lines = (ROOT / "records" / run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["train_loss_std"] for line in lines]


def in_parallel() -> str:
    changes = [
        gain("cifar10-block-parallel", arm, "sequential", period)
        for period in ("final", "all")
        for arm in ("w-2", "w-4")
    ]
    assert [case.state for case in changes] == ["not decided", *["does not hold"] * 3]
    two, four, two_over_all, four_over_all = (points(case) for case in changes)
    return (
        f"final accuracy against one step after the other: {two} with two processes, {four} with four; "
        f"over all epochs {two_over_all} and {four_over_all}"
    )


def inside_adagrad() -> str:
    gains = gain("adagrad-10-epochs/runs", "lenet4-adagrad-bcsc-m-8", "lenet4-adagrad-sgd")
    assert gains.state == "does not hold"
    return f"BCSC over SGD at the end {points(gains)}"


def with_dropout() -> str:
    study, rates = "dropout-10-epochs/runs", ("no", "5", "10", "15")
    gains = [gain(study, f"lenet4-{rate}-dropout-bcsc-m-8", f"lenet4-{rate}-dropout-sgd", "all") for rate in rates]
    assert [case.state for case in gains] == ["not decided", "not decided", "holds", "holds"]
    return f"gain over all epochs at 0, 5, 10 and 15 % dropout: {', '.join(points(case) for case in gains)}"


# By question: which section of docs/results.md the row leads to, and what was measured.
FINDINGS: Mapping[str, tuple[str, Callable[[], str]]] = {
    "Does the accuracy rise with M?": ("blocks-10-epochs", with_more_blocks),
    "Is anything left over SGD at equal gradient evaluations, each at its best rate?": (
        "tuned-equal-compute",
        over_sgd_when_tuned,
    ),
    "And over RBC and SBC, likewise?": ("tuned-equal-compute", over_rbc_and_sbc_when_tuned),
    "And in networks with BatchNorm?": ("batch-norm", with_batch_norm),
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


def test_over_rbc_and_over_sbc_with_wrong_labels_alone_is_decided_as_it_says() -> None:
    states = [
        gain("tuned-equal-compute/runs", *(f"lenet4-{condition}-{arm}-m-8" for arm in ("bcsc", other))).state
        for other in ("rbc", "sbc")
        for condition in ("clean", "15-wrong-labels")
    ]
    assert states == ["holds", "holds", "not decided", "holds"]


def test_its_verdict_is_that_of_the_records() -> None:
    gains = [
        gain("cifar10-10-epochs/runs", "lenet4-bcsc-m-8", "lenet4-sgd"),
        gain("cifar100-20-epochs/runs", "lenet4-bcsc-m-2", "lenet4-sgd"),
    ]
    assert [case.state for case in gains] == ["holds", "holds"]
    ours, theirs = (accuracies("cifar10-200-epochs/runs", f"lenet4-{arm}", seeds=1)[0] for arm in ("bcsc-m-8", "sgd"))
    first_screen = " ".join(README.partition("**Epoch for epoch")[2].partition("**")[0].split())
    ten, twenty = (fmean(case.values) for case in gains)
    assert (
        f"on CIFAR-10 with M = 8 by {ten:.0f} points after ten epochs and by {ours - theirs:.0f} after 200 "
        f"(one seed), on CIFAR-100 with M = 2 by {twenty:.0f} after twenty"
    ) in first_screen
