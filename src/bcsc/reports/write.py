"""A folder of runs -> a folder with the tables, figures, verdicts and the page."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bcsc.errors import InvalidArgumentError, MissingExtraError
from bcsc.experiments.study import Study, read_studies
from bcsc.files import write_whole
from bcsc.reports.claims import CLAIMS, Verdict, judge
from bcsc.reports.figures import write_figures
from bcsc.reports.page import page_of
from bcsc.reports.tables import table_of, to_csv, to_latex, to_markdown


def require_extras() -> None:
    """Refuse early what would fail late for want of a library."""
    missing = [name for name in ("jinja2", "matplotlib", "plotly") if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"A report needs {' and '.join(missing)}: pip install 'bcsc[report]'.")


def write_report(root: Path) -> Path:
    """Report on every run at or under ``root``; returns the path of the HTML page."""
    require_extras()
    studies, damaged = read_studies(root)
    if not studies and not damaged:
        raise InvalidArgumentError(f"There are no runs in {root}. Give the --out of bcsc reproduce or of bcsc train.")
    verdicts = judge(CLAIMS, studies)
    folder = root / "report"
    folder.mkdir(exist_ok=True)
    for study in studies:
        write_tables(study, folder)
        write_figures(study, folder)
    write_whole(folder / "claims.md", claims_to_markdown(verdicts).encode())
    page = folder / "index.html"
    write_whole(page, page_of(studies, verdicts, damaged).encode())
    return page


def write_tables(study: Study, folder: Path) -> list[Path]:
    """The table of a study as Markdown, CSV and LaTeX."""
    table = table_of(study)
    texts = {"md": to_markdown(table), "csv": to_csv(study), "tex": to_latex(table)}
    for suffix, text in texts.items():
        write_whole(folder / f"{study.name}.{suffix}", text.encode())
    return [folder / f"{study.name}.{suffix}" for suffix in texts]


def claims_to_markdown(verdicts: Sequence[Verdict]) -> str:
    """Every claim with its verdict and cases."""
    lines = ["# Claims"]
    for verdict in verdicts:
        lines += ["", f"## {verdict.claim.statement}", "", f"**{verdict.sentence}** ({verdict.claim.source})", ""]
        lines += [
            f"- {case.state}: {case.label}: {case.numbers}{'; ' + case.caveat if case.caveat else ''}"
            for case in verdict.cases
        ] or ["- no runs here"]
    return "\n".join(lines) + "\n"
