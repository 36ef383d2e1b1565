"""One Markdown page over a folder of studies: verdicts, tables, figures, and a link from every row to its runs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from urllib.parse import quote

from bcsc.errors import InvalidArgumentError
from bcsc.experiments.experiment import Axis
from bcsc.experiments.study import Study, read_studies
from bcsc.files import write_whole
from bcsc.reports.claims import CLAIMS, Verdict, judge
from bcsc.reports.decisions import decisions_of
from bcsc.reports.figures import ACCURACIES, write_figures
from bcsc.reports.tables import COST_OF_AN_EPOCH, WHAT_IS_SPREAD, as_markdown, markdown_rows, sentence, table_of

ABOUT = "about.md"  # beside the runs of a study: what it is, in a heading and a paragraph
LEAD = """# Results

What was measured of the paper's claims. This page is made from the run folders in `{root}` by
`bcsc report --markdown`; no number in it is typed by hand. The links in the last column of a table
lead to the runs behind its row: configuration, a line per epoch, origin.

{reading}

- Compare averages over halves and over all epochs only between methods with equally many epochs.
  Claims at equal gradient evaluations, where these numbers differ, are on the final accuracy. The
  middle one of an odd number of epochs is in the first half.
- At equal gradient evaluations the staircase of rates may drop some passes apart, as it drops at
  whole epochs.
- Where epochs were cut, part of the difference from the paper is due to length. The paper gives
  neither seeds nor spreads; its two rows of LeNet4 on Cifar10 with SGD, in two tables, are 0.75
  points apart (58.66 and 57.91).
- An interval covers the seeds alone. All seeds of a study meet the same wrong labels, and a tuned
  rate was chosen once.
- The spread of the training loss is over the mini-batches of an epoch, as the paper has it. It
  contains how far the loss falls within the epoch, which is more where an epoch computes M times
  the gradients.
- Rounding differs between kinds of CPU, so that the same configuration may end some tenths of a
  point apart. Times are left out for the same reason.
"""
HOW_TO_READ = (
    f"{COST_OF_AN_EPOCH} {WHAT_IS_SPREAD} Beside the numbers of a claim it is half the 95 % interval over the seeds."
)
COLUMNS = 100  # of a line of prose
COMPARED: tuple[Axis, ...] = ("epochs", "gradient_evaluations")  # not seconds, which do not compare between machines


def write_results(root: Path, page: Path) -> Path:
    """Write the page on every folder in ``root`` that holds runs, and its figures into a folder of the page's name."""
    studies = studies_in(root)
    text = results_page(studies, root, page)
    figures = page.with_suffix("")
    figures.mkdir(parents=True, exist_ok=True)
    for folder, study in studies.items():
        write_figures(study, folder.name, figures, ("svg",), (ACCURACIES,), axes=COMPARED)
    write_whole(page, text.encode())
    return page


def studies_in(root: Path) -> dict[Path, Study]:
    """The study in each folder of ``root``; one that cannot be read is refused, as the page is to leave nothing out."""
    groups = {folder: read_studies(folder) for folder in sorted(root.iterdir()) if folder.is_dir()}
    damaged = [run.reason for _, found in groups.values() for run in found]
    if damaged:
        raise InvalidArgumentError(f"A page of results leaves nothing out, but not all can be read: {damaged[0]}")
    crowded = [folder for folder, (found, _) in groups.items() if len(found) > 1]
    if crowded:
        raise InvalidArgumentError(
            f"{crowded[0]} holds more than one study, or runs that are not of its study. Give each a folder of its own."
        )
    studies = {folder: titled(study, folder) for folder, (found, _) in groups.items() for study in found}
    if not studies:
        raise InvalidArgumentError(f"There are no runs in {root}.")
    return studies


def titled(study: Study, folder: Path) -> Study:
    """The study with the heading of the words beside it, if there are any: its figure is called by it."""
    about = folder / ABOUT
    if not about.exists():
        return study
    return replace(study, title=about.read_text(encoding="utf-8").partition("\n")[0].lstrip("# "))


def results_page(studies: Mapping[Path, Study], root: Path, page: Path) -> str:
    """The text of the page, with links relative to it."""
    verdicts = [verdict for verdict in judge(CLAIMS, list(studies.values())) if verdict.cases]
    lead = LEAD.format(root=root.name, reading=wrapped(HOW_TO_READ))
    sections = [study_section(folder, study, page) for folder, study in studies.items()]
    return "\n".join([lead, *claims_section(verdicts), *sections])


def claims_section(verdicts: Sequence[Verdict]) -> list[str]:
    """The answer first: every claim with its verdict, then what each verdict stands on."""
    lines = ["## The claims", "", "| claim | of | verdict |", "| --- | --- | --- |"]
    lines += [
        f"| [{as_markdown(verdict.claim.statement)}](#{verdict.claim.name}) | {as_markdown(verdict.claim.source)} "
        f"| **{verdict.state}** {as_markdown(verdict.scope)} |"
        for verdict in verdicts
    ]
    for verdict in verdicts:
        lines += [
            "",
            f'<a id="{verdict.claim.name}"></a>',
            "",
            f"### {as_markdown(verdict.claim.statement)}",
            "",
            wrapped(f"**{as_markdown(verdict.sentence)}.**"),
            "",
            f"| case | {verdict.cases[0].unit} | interval | state |",
            "| --- | ---: | --- | --- |",
        ]
        lines += [
            f"| {as_markdown(case.label)} | {as_markdown(case.numbers)} | {case.interval} | {case.state} |"
            for case in verdict.cases
        ]
    return [*lines, ""]


def study_section(folder: Path, study: Study, page: Path) -> str:
    """The table of a study with links to its runs, and its figure; a link may end on the name of its folder."""
    table = table_of(study)
    about = folder / ABOUT
    heading = (
        about.read_text(encoding="utf-8").strip()
        if about.exists()
        else f"## {as_markdown(table.title)}\n\n{study.question}"
    )
    notes = [f"*{as_markdown(sentence(study.reach))}*", ""] if study.reach else []
    links = [" ".join(run_link(run.folder, run.spec.seed, page) for run in runs) for runs in study.runs.values()]
    figure = f"![{folder.name}]({quote(f'{page.stem}/{folder.name}-{ACCURACIES}.svg')})"
    anchor = f'<a id="{quote(folder.name)}"></a>'
    return "\n".join([anchor, "", heading, "", *notes, *markdown_rows(table, links), *decided(study), "", figure, ""])


def decided(study: Study) -> list[str]:
    """What was tuned or timed before the final runs, if anything was."""
    table = decisions_of(study)
    return (
        []
        if table is None
        else ["", wrapped(" ".join([f"**{table.title}.**", *table.notes])), "", *markdown_rows(table)]
    )


def wrapped(prose: str) -> str:
    """Prose in lines that fit the page; names with hyphens stay whole."""
    return fill(prose, COLUMNS, break_on_hyphens=False, break_long_words=False)


def run_link(folder: Path, seed: int, page: Path) -> str:
    """A link from the page to a run folder, called by its seed."""
    return f"[{seed}]({quote(os.path.relpath(folder, page.parent))})"
