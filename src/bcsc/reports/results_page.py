"""One Markdown page over a folder of studies: verdicts, tables, figures, and a link from every row to its runs."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
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
`make results`; no number in it is typed by hand. The links in the last column of a table lead to the
runs behind its row: configuration, a line per epoch, origin.

{cost} {spread} Beside the points of a claim it is half the 95 % interval. Averages over halves and over all epochs
compare only methods of as many epochs. At equal gradient evaluations the numbers of epochs differ, so that claims there
are on the final accuracy. Of an odd number of epochs the middle one counts to the first half. Where epochs were cut,
the difference from the paper is one of length, too. Times are left out: the runs were made beside other work, some on
other machines.
"""
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
    studies = {folder: study for folder, (found, _) in groups.items() for study in found}
    if not studies:
        raise InvalidArgumentError(f"There are no runs in {root}.")
    return studies


def results_page(studies: Mapping[Path, Study], root: Path, page: Path) -> str:
    """The text of the page, with links relative to it."""
    verdicts = [verdict for verdict in judge(CLAIMS, list(studies.values())) if verdict.cases]
    lead = LEAD.format(root=root.name, cost=COST_OF_AN_EPOCH, spread=WHAT_IS_SPREAD)
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
            f"**{as_markdown(verdict.sentence)}.**",
            "",
            "| case | points | interval | state |",
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
    heading = about.read_text().strip() if about.exists() else f"## {as_markdown(table.title)}\n\n{study.question}"
    scope = study.caveat or study.reach
    notes = [f"*{as_markdown(sentence(scope))}*", ""] if scope else []
    links = [" ".join(run_link(run.folder, run.spec.seed, page) for run in runs) for runs in study.runs.values()]
    figure = f"![{folder.name}]({quote(f'{page.stem}/{folder.name}-{ACCURACIES}.svg')})"
    anchor = f'<a id="{quote(folder.name)}"></a>'
    return "\n".join([anchor, "", heading, "", *notes, *markdown_rows(table, links), *decided(study), "", figure, ""])


def decided(study: Study) -> list[str]:
    """What was tuned or timed before the final runs, if anything was."""
    table = decisions_of(study)
    return [] if table is None else ["", " ".join([f"**{table.title}.**", *table.notes]), "", *markdown_rows(table)]


def run_link(folder: Path, seed: int, page: Path) -> str:
    """A link from the page to a run folder, called by its seed."""
    return f"[{seed}]({quote(os.path.relpath(folder, page.parent))})"
