"""``bcsc runs DIR``: the runs below a folder, what they are and how they stand."""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bcsc.errors import DamagedRunError, InvalidArgumentError, in_one_line
from bcsc.runs.folder import RunFolder, run_folders

Row = Mapping[str, Any]

# column -> the key it is sorted by, and how a run that can be read shows it; words to the left, numbers to the right
COLUMNS: Mapping[str, tuple[str, Callable[[Row], str]]] = {
    "run": ("run", lambda row: row["run"]),
    "state": ("state", lambda row: row["state"]),
    "epochs": ("epochs_done", lambda row: f"{row['epochs_done']}/{row['epochs']}"),
    "data": ("data", lambda row: row["data"]),
    "model": ("model", lambda row: row["model"]),
    "method": ("method", lambda row: method_of(row)),
    "M": ("blocks", lambda row: str(row["blocks"])),
    "rate": ("lr", lambda row: "default" if row["lr"] is None else f"{row['lr']:g}"),
    "seed": ("seed", lambda row: str(row["seed"])),
    "accuracy": ("accuracy", lambda row: "" if row["accuracy"] is None else f"{row['accuracy']:.2f} %"),
}
NUMBERS = ("epochs", "M", "rate", "seed", "accuracy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder to look in, and how to show what is there."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="a folder with runs in it, at any depth")
    parser.add_argument("--sort", choices=tuple(COLUMNS), default="run", help="by a column, the best accuracy first")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, for other programs")


def run(arguments: argparse.Namespace) -> int:
    """One line per run."""
    if not arguments.folder.is_dir():
        raise InvalidArgumentError(f"{arguments.folder} is not a folder.")
    rows = in_order([describe(folder) for folder in run_folders(arguments.folder)], arguments.sort)
    if arguments.json:
        print("".join(f"{json.dumps(row)}\n" for row in rows), end="")
    else:
        print(table(rows) if rows else f"No runs in {arguments.folder}.")
    return 0


def describe(path: Path) -> Row:
    """What a run is and how it stands, or what is wrong with it; numbers as they are."""
    folder = RunFolder(path)
    try:
        record = folder.read()
    except DamagedRunError as error:
        return {"run": str(path), "state": "damaged", "message": in_one_line(error)}
    spec, summary = record.spec, record.summary
    return {
        "run": str(path),
        "state": "interrupted" if summary.state == "running" and not folder.is_busy() else summary.state,
        "epochs": summary.epochs,
        "epochs_done": summary.epochs_done,
        "data": spec.data,
        "model": spec.model,
        "method": spec.method,
        "optimizer": spec.optimizer,
        "blocks": 1 if spec.method == "sgd" else spec.blocks,
        "lr": spec.learning_rate,
        "seed": spec.seed,
        "accuracy": summary.test_accuracy["final"] if summary.test_accuracy else None,
        "held_out": spec.validation,
        "seconds": summary.seconds,
        "message": summary.message,
    }


def method_of(row: Row) -> str:
    """The method, and the optimizer where it is not plain SGD."""
    return str(row["method"]) if row["optimizer"] == "sgd" else f"{row['method']}, {row['optimizer']}"


def in_order(rows: Sequence[Row], column: str) -> list[Row]:
    """By a column, then by name; what has no value comes last, and the best accuracy first."""
    key, _ = COLUMNS[column]
    known = sorted((row for row in rows if row.get(key) is not None), key=lambda row: (row[key], row["run"]))
    if column == "accuracy":
        known.sort(key=lambda row: -row["accuracy"])
    return known + [row for row in rows if row.get(key) is None]


def table(rows: Sequence[Row]) -> str:
    """A header, and a line per run; of a damaged one, what is wrong."""
    texts = [[show(row) for _, show in COLUMNS.values()] for row in rows if row["state"] != "damaged"]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *texts, strict=True)]
    lines = (
        "  ".join(
            text.rjust(width) if name in NUMBERS else text.ljust(width)
            for name, text, width in zip(COLUMNS, line, widths, strict=True)
        ).rstrip()
        for line in [list(COLUMNS), *texts]
    )
    header, *whole = lines
    shown = iter(whole)
    mixed = (f"{row['run']}  damaged  {row['message']}" if row["state"] == "damaged" else next(shown) for row in rows)
    return "\n".join([header, *mixed])
