"""``bcsc report``: from run folders to tables, figures, verdicts and one HTML page."""

import argparse
import sys
from functools import partial
from pathlib import Path

from bcsc.cli import folder_name
from bcsc.errors import InvalidArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the runs are, and where the report goes."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders with runs at any depth")
    parser.add_argument(
        "--out",
        type=folder_name,
        metavar="DIR",
        help="for the report (default: DIR/report, or report here for several DIRs)",
    )
    parser.add_argument(
        "--markdown", type=folder_name, metavar="FILE", help="instead, one Markdown page on the studies in the one DIR"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report and say where it is."""
    from bcsc.reports.write import write_report

    for folder in arguments.folders:
        if not folder.is_dir():
            raise InvalidArgumentError(f"{folder} is not a folder. Give the --out of bcsc reproduce or bcsc train.")
    if arguments.markdown is not None:
        from bcsc.reports.results_page import write_results

        if len(arguments.folders) > 1 or arguments.out is not None:
            raise InvalidArgumentError("--markdown takes one folder of studies, and no --out.")
        print(f"results: {write_results(arguments.folders[0], arguments.markdown)}")
        return 0
    print(f"report: {write_report(*arguments.folders, out=arguments.out, say=partial(print, file=sys.stderr))}")
    return 0
