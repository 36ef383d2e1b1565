"""``bcsc report``: from run folders to tables, figures, verdicts and one HTML page."""

import argparse
from pathlib import Path

from bcsc.errors import InvalidArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the runs are."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder with runs at any depth")


def run(arguments: argparse.Namespace) -> int:
    """Write the report and say where it is."""
    from bcsc.reports.write import write_report

    if not arguments.folder.is_dir():
        raise InvalidArgumentError(
            f"{arguments.folder} is not a folder. Give the --out of bcsc reproduce or bcsc train."
        )
    print(f"report: {write_report(arguments.folder)}")
    return 0
