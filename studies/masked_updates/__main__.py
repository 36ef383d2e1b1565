"""``python -m studies.masked_updates``: get the text, make the runs, write the table."""

import argparse
import sys
from functools import partial
from pathlib import Path

from bcsc.cli import Parser, main

RECORDS, PAGE = Path("records/masked-updates"), Path("docs/masked-updates.md")


def study_parser() -> argparse.ArgumentParser:
    """Three commands."""
    parser = Parser(prog="python -m studies.masked_updates", description="Masked updates at one gradient per step.")
    commands = parser.add_subparsers(required=True)
    prepare = commands.add_parser("prepare", help="fetch the text by pip and check it")
    prepare.set_defaults(run=run_prepare)
    runs = commands.add_parser("run", help="make the runs that are missing, the decisive ones first")
    runs.add_argument("--out", type=Path, default=RECORDS, metavar="DIR", help="folder of the runs")
    runs.add_argument("--bases", nargs="*", default=[], choices=["rmsprop", "adamw", "sgd"], help="only these bases")
    runs.set_defaults(run=run_missing)
    table = commands.add_parser("table", help="write the table of the page from the records")
    table.add_argument("--records", type=Path, default=RECORDS, metavar="DIR", help="folder of the runs")
    table.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help="page that the table stands in")
    table.set_defaults(run=run_table)
    return parser


def run_prepare(arguments: argparse.Namespace) -> int:
    """Get the text."""
    from studies.masked_updates.text import fetch_text

    print(fetch_text())
    return 0


def run_missing(arguments: argparse.Namespace) -> int:
    """Make the runs, on one core."""
    import torch

    from studies.masked_updates.study import LanguageStudy, cells
    from studies.masked_updates.text import read_text

    torch.set_num_threads(1)
    study = LanguageStudy(arguments.out, read_text(), {}, partial(print, flush=True))
    for cell in cells(arguments.bases):
        study.carry_out(cell)
    return 0


def run_table(arguments: argparse.Namespace) -> int:
    """Write the table where it belongs."""
    from bcsc.files import write_whole
    from studies.masked_updates.table import tables, with_tables

    page = with_tables(arguments.page.read_text(encoding="utf-8"), tables(arguments.records))
    write_whole(arguments.page, page.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(parser=study_parser))
