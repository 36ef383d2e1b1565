"""docs/performance.md from a record: the goals, what was measured, on what, and where the time of a step goes."""

from pathlib import Path
from textwrap import fill
from typing import Any

RESULTS = Path(__file__).parent / "results"
COLUMNS = 100

INTRODUCTION = """
BCSC computes M gradients where SGD computes one; nothing else should cost anything. `make bench` measures how far that
holds: ratios taken side by side, the contestants taking turns, medians. Everything is measured twice, some minutes
apart. Where the goal is nearer to the mean than the two are to each other, it is neither met nor missed. Absolute
times do not compare between machines, ratios nearly do.
"""
COMMANDS = """
`make bench` writes a record with its date to `benchmarks/results/`, `make performance` makes this page from the newest
one. `make bench-compare` measures again and shows what has changed since. With `python -m benchmarks --threads 1` the
CPU time of the process is measured wherever only that process works: on a busy machine it is the number that others
disturb least. The tests run `python -m benchmarks --tiny`, which sees that it all works, not how fast.
"""
NOTES = """
What was tried, what was dropped and what the misses are made of is in [the laboratory's notes](lab/performance.md).
"""
PARTS = ("whole", "forward-backward", "feeding", "masking", "base step", "unaccounted")
VERDICTS = {"met": "met", "missed": "missed", "not met": "missed", "neither": "neither met nor missed", "": ""}


def newest_record() -> Path:
    """The last by date."""
    return max(RESULTS.glob("*.json"))


def paragraph(text: str) -> str:
    """In lines of the width that the documentation has."""
    return fill(" ".join(text.split()), COLUMNS, break_long_words=False, break_on_hyphens=False)


def performance_page(record: dict[str, Any], name: str) -> str:
    """The whole page; ``name`` is that of the record's file without its ending."""
    parts = [
        "# What it costs",
        paragraph(INTRODUCTION),
        "## The goals",
        goals_table(record["ratios"]),
        paragraph(machine(record, name)),
        f"![time against blocks, data and parameters](../benchmarks/results/{name}.png)",
        "## Where the time of a step goes",
        parts_table(record["ratios"]),
        paragraph(
            "The last column is the whole less its parts, each measured for itself: it is bookkeeping and noise, and "
            "can be negative. Feeding prepares several batches at a time, so LeNet4's are medians over cycles of "
            "sixteen steps."
        ),
        "## How to measure",
        paragraph(COMMANDS),
        paragraph(NOTES),
    ]
    return "\n\n".join(parts) + "\n"


def goals_table(rows: list[dict[str, Any]]) -> str:
    """One row per measurement."""
    lines = ["| goal | measured | ratio | twice | at most | |", "| ---: | --- | ---: | ---: | ---: | --- |"]
    for row in rows:
        twice = ", ".join(f"{value:.3f}" for value in row.get("repeats", ()))
        most = "" if row["most"] is None else f"{row['most']:.3g}"
        cells = (row["goal"], row["name"], f"{row['value']:.3f}", twice, most, VERDICTS[row["verdict"]])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def machine(record: dict[str, Any], name: str) -> str:
    """What it was measured on, and how busy that was."""
    origin, known = record["origin"], record.get("machine", {})
    processor = f"{known['processor']}, {known['cores']} cores" if known else "a machine that the record does not name"
    numba = f", Numba {known['numba']}" if known.get("numba") else ", without Numba"
    is_repeated = any(row.get("repeats") for row in record["ratios"])
    once = "" if is_repeated else " This record is older than the step in one pass, and everything is measured once."
    before, after = (record["load_average"][when][0] for when in ("before", "after"))
    return (
        f"`benchmarks/results/{name}.json`, measured on {processor} ({origin['platform']}), with {origin['threads']} "
        f"threads of torch {origin['torch'].partition('+')[0]}{numba}, on {record['images']}, batch 128. The load "
        f"average of the machine was {before:.1f} before and {after:.1f} after.{once}"
    )


def parts_table(rows: list[dict[str, Any]]) -> str:
    """The parts of an inner step, network by network."""
    names = (*PARTS[:-1], "not accounted for")
    lines = ["| milliseconds | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for row in rows:
        if "unaccounted" in row["seconds"]:
            values = [f"{1000 * row['seconds'][part]:.1f}" for part in PARTS]
            lines.append(f"| {row['name'].rpartition(' ')[2]} | " + " | ".join(values) + " |")
    return "\n".join(lines)
