"""``bcsc runs DIR``: the runs below a folder and how they stand."""

import argparse
import json
from pathlib import Path
from typing import Any

from bcsc.errors import InvalidArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder to look in."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder with runs in it, at any depth")


def run(arguments: argparse.Namespace) -> int:
    """One line per run."""
    if not arguments.folder.is_dir():
        raise InvalidArgumentError(f"{arguments.folder} is not a folder.")
    rows = [describe(path.parent) for path in sorted(arguments.folder.rglob("run.toml"))]
    if not rows:
        print(f"No runs in {arguments.folder}.")
        return 0
    width = max(len(row[0]) for row in rows)
    for name, state, epochs, accuracy in rows:
        print(f"{name:{width}}  {state:11}  {epochs:>9}  {accuracy}")
    return 0


def describe(folder: Path) -> tuple[str, str, str, str]:
    """Name, state, epochs and final accuracy."""
    from bcsc.runs.folder import RunFolder

    try:
        summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        state = summary["state"]
        if state == "running" and not RunFolder(folder).is_busy():
            state = "interrupted"
        accuracy = summary["test_accuracy"]
        epochs = f"{summary['epochs_done']}/{summary['epochs']}"
    except (OSError, ValueError, KeyError, TypeError):
        return str(folder), "damaged", "", ""
    return str(folder), state, epochs, f"{accuracy['final']:.2f} %" if accuracy else ""
