"""All measurements as a JSON file, and a comparison with an earlier one."""

import json
import os
import platform
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bcsc.errors import InvalidArgumentError
from bcsc.files import write_whole
from bcsc.origin import describe_origin
from benchmarks.clock import Ratio, Size, repeated
from benchmarks.goals import against, blocks, growth, memory, network, overhead, step
from benchmarks.problem import pictures

GOALS: Sequence[Callable[[Size], list[Ratio]]] = (
    overhead.measure,
    against.measure,
    network.measure,
    memory.measure,
    blocks.measure,
    step.measure,
)


def measure(size: Size, folder: Path, say: Callable[[str], None]) -> Path:
    """Measure everything; returns the JSON file, beside which the plot of growth is written."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{datetime.now(UTC):%Y-%m-%d}.json"
    load_before = os.getloadavg()
    times: list[list[Ratio]] = []
    repeats = size.pick(2, 1)  # some minutes apart
    for number in range(repeats):
        say(f"{number + 1} of {repeats}")
        rows: list[Ratio] = []
        for goal in GOALS:
            rows += tell(goal(size), say)
        grown = growth.lines(size)
        times.append([*rows, *tell(growth.ratios(grown), say)])
    growth.draw(grown, path.with_suffix(".png"))
    say("together")
    together = tell([repeated(both) for both in zip(*times, strict=True)], say)
    record = {
        "origin": describe_origin("cpu"),
        "machine": {"processor": processor(), "cores": os.cpu_count(), "numba": installed("numba")},
        "tiny": size.tiny,
        "images": pictures().origin,
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "ratios": [row.plain() for row in sorted(together, key=lambda row: row.goal)],
    }
    write_whole(path, json.dumps(record, indent=1).encode())
    return path


def processor() -> str:
    """What the machine computes with, by the name that its system gives it."""
    try:
        named = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        named = None
    return named[1].strip() if named else platform.processor() or platform.machine()


def installed(package: str) -> str | None:
    """The version of a package, if it is there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def tell(rows: list[Ratio], say: Callable[[str], None]) -> list[Ratio]:
    """Print the rows as they come."""
    for row in rows:
        goal = f"at most {row.most:.3g}" if row.most is not None else "no goal"
        say(f"{row.goal}  {row.name}: {row.value:.3f}  ({goal}) {row.verdict}")
    return rows


def read(path: Path) -> dict[str, Any]:
    """An earlier record."""
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{path} cannot be read as a benchmark's record: {error}") from error
    return record


def comparison(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """One line per measurement that both have: the ratio then, now, and the change."""
    before = {row["name"]: row["value"] for row in old["ratios"]}
    both = [(row["name"], before[row["name"]], row["value"]) for row in new["ratios"] if before.get(row["name"])]
    return [f"{name}: {then:.3f} -> {now:.3f} ({now / then - 1:+.0%})" for name, then, now in both]
