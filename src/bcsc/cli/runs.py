"""``bcsc runs DIR``: the runs below a folder and how they stand."""

import argparse
from pathlib import Path

from bcsc.errors import DamagedRunError, InvalidArgumentError, in_one_line
from bcsc.runs.folder import RunFolder, run_folders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder to look in."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder with runs in it, at any depth")


def run(arguments: argparse.Namespace) -> int:
    """One line per run."""
    if not arguments.folder.is_dir():
        raise InvalidArgumentError(f"{arguments.folder} is not a folder.")
    rows = [describe(folder) for folder in run_folders(arguments.folder)]
    if not rows:
        print(f"No runs in {arguments.folder}.")
        return 0
    width = max(len(row[0]) for row in rows)
    for name, state, epochs, outcome in rows:
        print(f"{name:{width}}  {state:11}  {epochs:>9}  {outcome}")
    return 0


def describe(path: Path) -> tuple[str, str, str, str]:
    """Name, state, epochs and final accuracy, or what is wrong."""
    folder = RunFolder(path)
    try:
        summary = folder.read().summary
    except DamagedRunError as error:
        return str(path), "damaged", "", in_one_line(error)
    state = "interrupted" if summary.state == "running" and not folder.is_busy() else summary.state
    accuracy = summary.test_accuracy
    epochs = f"{summary.epochs_done}/{summary.epochs}"
    return str(path), state, epochs, f"{accuracy['final']:.2f} %" if accuracy else ""
