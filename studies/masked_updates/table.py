"""The table of the study, made from its records; it stands in docs/masked-updates.md between two marks."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import fill

from bcsc.errors import InvalidArgumentError
from bcsc.reports.judging.cases import Case
from studies.masked_updates.arms import ARMS, SEEDS, STAGES, TUNING_SEED
from studies.masked_updates.study import EVALUATIONS, Cell, Record, cells, read_run

BEGIN, END = "<!-- made by python -m studies.masked_updates table -->", "<!-- the end of what it makes -->"
NOTHING = "There are no records of it yet."
TITLES = {"rmsprop": "RMSprop", "adamw": "AdamW", "sgd": "SGD with momentum"}
RATES = {"constant": "constant rate", "cosine": "cosine rate", "no warm-up": "constant rate, no warm-up"}
CYCLIC, FIXED = "cyclic, M = 2", "cyclic, M = 2, the same blocks always"
QUESTIONS: Mapping[str, Sequence[tuple[str, str]]] = {
    "Does the mask help?": [(arm, "dense") for arm in ARMS if arm != "dense"],
    "Does the balance of the cycle?": [(CYCLIC, "SkipUpdate"), ("cyclic by tensor, M = 2", "SkipUpdate by tensor")],
    "Do fresh blocks?": [(CYCLIC, FIXED)],
}
HEADER = ("arm", "rate", "rates tried", "loss on the test text, by seed", "mean", "gain over dense, 95 % interval")


def read_records(root: Path) -> dict[Cell, list[Record]]:
    """All runs in a folder, by the cell that they belong to."""
    records = [(path.parent, read_run(path.parent)) for path in sorted(root.glob(f"*/{EVALUATIONS}"))]
    found: dict[Cell, list[Record]] = {}
    for cell in cells():
        found[cell] = [record for folder, record in records if folder.name == cell.folder(record.run)]
    return found


def final_runs(records: Sequence[Record]) -> list[Record]:
    """Those at the best of the rates that were tried."""
    tried = [(record.loss, record.run.lr) for record in records if record.run.seed == TUNING_SEED]
    return [record for record in records if record.run.seed != TUNING_SEED and tried and record.run.lr == min(tried)[1]]


def final_losses(records: Sequence[Record]) -> dict[int, float]:
    """The loss of each seed at the chosen rate, if that is chosen."""
    return {record.run.seed: record.loss for record in final_runs(records)}


def gains_over(other: Mapping[int, float], losses: Mapping[int, float]) -> Case:
    """By how much the loss is less than another's, for each seed that both have."""
    gains = [other[seed] - losses[seed] for seed in losses if seed in other]
    return Case("", tuple(gain for gain in gains if math.isfinite(gain)), "")


def in_numbers(gains: Case) -> str:
    """The mean of the gains with its interval, if there is one."""
    return f"{fmean(gains.values):+.4f} ± {gains.margin:.4f}" if len(gains.values) > 1 else "-"


def row_of(cell: Cell, found: Mapping[Cell, Sequence[Record]]) -> tuple[str, ...]:
    """An arm's line."""
    records, losses = found[cell], final_losses(found[cell])
    rates = {record.run.lr for record in final_runs(records)}
    tried = sorted(record.run.lr for record in records if record.run.seed == TUNING_SEED)
    notes = ["the best at an end"] if tried and rates & {tried[0], tried[-1]} else []
    diverged = sorted(record.run.lr for record in records if record.run.seed == TUNING_SEED and record.loss == math.inf)
    notes += [f"diverged at {', '.join(f'{rate:g}' for rate in diverged)}"] if diverged else []
    dense = {} if cell.arm == "dense" else final_losses(found[cell._replace(arm="dense")])
    return (
        cell.arm,
        ", ".join(f"{rate:g}" for rate in sorted(rates)) or "-",
        ", ".join([f"{tried[0]:g} to {tried[-1]:g}", *notes]) if tried else "-",
        ", ".join(f"{losses[seed]:.4f}" for seed in SEEDS if seed in losses) or "-",
        f"{fmean(losses.values()):.4f}" if losses else "-",
        in_numbers(gains_over(dense, losses)),
    )


def findings_of(own: Sequence[Cell], found: Mapping[Cell, Sequence[Record]]) -> list[str]:
    """In words what the seeds of a base decide: each arm against dense, and what its parts do."""
    losses = {cell.arm: final_losses(found[cell]) for cell in own}
    findings = []
    for question, pairs in QUESTIONS.items():
        for arm, other in pairs:
            own_losses, other_losses = losses.get(arm, {}), losses.get(other, {})
            gains = gains_over(other_losses, own_losses)
            diverged = [name for name, some in ((arm, own_losses), (other, other_losses)) if math.inf in some.values()]
            if diverged:
                findings.append(f"{question} {' and '.join(diverged)} diverged at a seed, which decides nothing.")
            elif len(gains.values) > 1:
                state = {"holds": "better than", "does not hold": "worse than"}.get(gains.state, "not told apart from")
                findings.append(
                    f"{question} {arm} is {state} {other}: {in_numbers(gains)} over {len(gains.values)} seeds."
                )
    return findings


def tables(root: Path) -> str:
    """A table for every base and schedule that has been begun, and what is missing."""
    found = read_records(root)
    sections, missing = [], []
    for base, schedule in dict.fromkeys(stage[:2] for stage in STAGES):
        planned = [cell for arm in ARMS if (cell := Cell(base, schedule, arm)) in found]
        own = [cell for cell in planned if found[cell]]
        not_run = "; ".join(cell.arm for cell in planned if not final_losses(found[cell]).keys() >= {*SEEDS})
        missing += [wrapped(f"- {TITLES[base]}, {RATES[schedule]}: {not_run}")] if not_run else []
        if own:
            rows = [HEADER, tuple("---" for _ in HEADER), *[row_of(cell, found) for cell in own]]
            lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
            findings = "\n".join(wrapped(f"- {each}") for each in findings_of(own, found))
            sections.append(f"**{TITLES[base]}, {RATES[schedule]}**\n\n{lines}\n\n{findings}".rstrip())
    if sections and missing:
        sections.append("Planned, but not run yet with every seed:\n\n" + "\n".join(missing))
    return "\n\n".join(sections) or NOTHING


def wrapped(item: str) -> str:
    """An item of a list in lines that fit the page."""
    return fill(item, 100, subsequent_indent="  ", break_on_hyphens=False)


def with_tables(page: str, made: str) -> str:
    """The page with new tables between the marks."""
    if BEGIN not in page or END not in page.partition(BEGIN)[2]:
        raise InvalidArgumentError(f"The page has not the two lines that the tables go between: {BEGIN} and {END}")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}"
