"""The first run: SGD and BCSC on real handwritten digits with wrong labels, by epoch and at equal compute."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bcsc.experiments.study import Study, what_it_computes
from bcsc.runs.record import RunRecord
from bcsc.runs.spec import RunSpec

NAME, TITLE = "demo", "A first look: SGD and BCSC on handwritten digits"
QUESTION = "LeNet4 on 1,437 real handwritten digits (UCI), of which 15 % carry a wrong label; tested on 360 clean ones."
EPOCHS, BLOCKS = 12, 8
# One thread: a network this small gains little from a second, and loses much where the cores are busy.
SGD = RunSpec(data="digits", method="sgd", outliers="symmetric:0.15", epochs=EPOCHS, threads=1)
RUNS: Mapping[str, RunSpec] = {
    "SGD": SGD,
    "BCSC": replace(SGD, method="bcsc", blocks=BLOCKS),
    "SGD, equal compute": replace(SGD, lr=0.1 / BLOCKS, epochs=BLOCKS * EPOCHS),
}


def table(summaries: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """A header and a row per run: accuracy by epoch as in the paper, and what it cost."""
    rows = [["", "epochs", "gradient evaluations", "first half", "last half", "final accuracy"]]
    for name, summary in summaries.items():
        accuracy, evaluations = summary["test_accuracy"], summary["gradient_evaluations"]
        percentages = [f"{accuracy[period]:.2f} %" for period in ("first_half", "last_half", "final")]
        rows.append([name, str(summary["epochs"]), f"{evaluations:,}", *percentages])
    return rows


def final_accuracies(records: Iterable[RunRecord]) -> dict[str, float]:
    """By name, the final accuracy of each run of the demo that is among these."""
    names = {what_it_computes(spec): name for name, spec in RUNS.items()}
    named = {names.get(what_it_computes(record.spec)): record for record in records if record.is_finished}
    return {name: named[name].accuracy("final") for name in RUNS if name in named}


def in_its_own_words(study: Study) -> Study:
    """The study of runs without an experiment, called by the demo's names if they are the demo's and no others."""
    names = {what_it_computes(spec): name for name, spec in RUNS.items()}
    found = {names.get(what_it_computes(run.spec)): (cell, run) for cell, runs in study.runs.items() for run in runs}
    if set(found) != set(RUNS):
        return study
    runs = {replace(cell, condition="", arm=name): (run,) for name, (cell, run) in ((n, found[n]) for n in RUNS)}
    return replace(study, name=NAME, title=TITLE, question=QUESTION, runs=runs)


def conclusion(final: Mapping[str, float]) -> list[str]:
    """What the demo shows, once all its runs are done, and what it does not."""
    if set(final) != set(RUNS):
        return []
    sgd, bcsc, equal = (final[name] for name in RUNS)
    return [
        f"Epoch for epoch BCSC ends at {bcsc:.2f} % and SGD at {sgd:.2f} %; "
        f"with as many gradients as BCSC, SGD ends at {equal:.2f} %.",
        f"An epoch of BCSC with M = {BLOCKS} blocks computes {BLOCKS} times the gradients of an SGD epoch. "
        f"The third run gives SGD as many, in {BLOCKS} times the epochs at 1/{BLOCKS} of the rate: "
        f"of the {bcsc - sgd:+.2f} points by epoch, {bcsc - equal:+.2f} are left.",
        "One seed and 360 test images: a first look, not a result. "
        "bcsc reproduce compute and bcsc reproduce outliers ask again on CIFAR-10, with several seeds.",
    ]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """The table as text: names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
