"""A plugin for pytest under ``make mutants``: the tests that took least come first, as one that fails ends it."""

import json
from pathlib import Path

import pytest

DURATIONS = Path("mutmut-stats.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by the seconds that mutmut has measured, once it has."""
    if DURATIONS.exists():
        seconds = json.loads(DURATIONS.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    for item in items:
        item._nodeid = item.nodeid  # mutmut 3.8 asks for it by the name that it had up to pytest 9.1
