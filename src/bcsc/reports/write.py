"""Folders of runs -> a folder with the tables, figures, verdicts and the page."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from bcsc.errors import InvalidArgumentError, MissingExtraError, in_one_line
from bcsc.experiments import first_look
from bcsc.experiments.study import Study, read_studies
from bcsc.files import write_whole
from bcsc.reports.claims import CLAIMS, Verdict, judge
from bcsc.reports.decisions import decisions_of
from bcsc.reports.figures import write_figures
from bcsc.reports.page import distinct, page_of
from bcsc.reports.tables import table_of, to_csv, to_latex, to_markdown


def require_extras() -> None:
    """Refuse early what would fail late for want of a library."""
    missing = [name for name in ("jinja2", "matplotlib", "plotly") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"A report needs {' and '.join(missing)}: pip install 'bcsc[report]'.")


def write_report(*roots: Path, out: Path | None = None, say: Callable[[str], None] = lambda _line: None) -> Path:
    """Report on every run at or under the folders; returns the path of the HTML page.

    What cannot be read is left out, named on the page, and said.
    It goes to ``out``: by default the folder ``report`` in the one that is given, or here if there are several.
    The same runs give the same bytes.
    """
    require_extras()
    studies, damaged = read_studies(*roots)
    if not studies and not damaged:
        raise InvalidArgumentError(
            f"There are no runs in {' or '.join(map(str, roots))}. Give the --out of bcsc reproduce or of bcsc train."
        )
    for run in damaged:
        say(f"left out: {in_one_line(run.reason)}")
    if len(studies) == 1:
        studies = [first_look.in_its_own_words(studies[0])]
    folder = out or (roots[0] / "report" if len(roots) == 1 else Path("report"))
    folder.mkdir(parents=True, exist_ok=True)
    named = dict(zip(names_of(studies), studies, strict=True))
    files = {name: write_study(study, name, folder) for name, study in named.items()}
    verdicts = judge(CLAIMS, studies)
    write_whole(folder / "claims.md", claims_to_markdown(verdicts).encode())
    page = folder / "index.html"
    write_whole(page, page_of(named, verdicts, damaged, conclusion=conclusion_of(studies), files=files).encode())
    return page


def conclusion_of(studies: Sequence[Study]) -> list[str]:
    """What the demo says of itself, if these are its runs; an experiment has claims instead."""
    if any(study.folder is not None for study in studies):
        return []
    return first_look.conclusion(
        first_look.final_accuracies(run for study in studies for runs in study.runs.values() for run in runs)
    )


def names_of(studies: Sequence[Study]) -> list[str]:
    """What the files of each are called: the experiment, or its folder where two studies are of the same one."""
    counts = [sum(other.name == study.name for other in studies) for study in studies]
    return distinct(
        [
            study.folder.resolve().name if count > 1 and study.folder is not None else study.name
            for study, count in zip(studies, counts, strict=True)
        ]
    )


def write_study(study: Study, name: str, folder: Path, figures: Sequence[str] = ("png", "pdf")) -> list[Path]:
    """The table of a study as Markdown, CSV and LaTeX, and its figures in the formats given; returns the files."""
    tables = [table for table in (table_of(study), decisions_of(study)) if table is not None]
    texts = {"csv": to_csv(study), "tex": to_latex(tables[0]), "md": "\n".join(map(to_markdown, tables))}
    for suffix, text in texts.items():
        write_whole(folder / f"{name}.{suffix}", text.encode())
    return [*(folder / f"{name}.{suffix}" for suffix in texts), *write_figures(study, name, folder, figures)]


def claims_to_markdown(verdicts: Sequence[Verdict]) -> str:
    """Every claim with its verdict and cases, then those of which there are no runs here."""
    lines = ["# Claims"]
    for verdict in (verdict for verdict in verdicts if verdict.cases):
        source = f" ({verdict.claim.source})" if verdict.claim.source else ""
        lines += ["", f"## {verdict.claim.statement}", "", f"**{verdict.sentence}**{source}", ""]
        lines += [
            f"- {case.state}: {case.label}: {case.numbers}{'; ' + case.caveat if case.caveat else ''}"
            for case in verdict.cases
        ]
    untested = [f"- {verdict.claim.statement}" for verdict in verdicts if not verdict.cases]
    lines += ["", "## Claims without runs here", "", *untested] if untested else []
    return "\n".join(lines) + "\n"
