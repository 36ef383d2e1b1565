"""The real data sets where they are, a reason where they are not, and tiny ones made up."""

from collections.abc import Callable
from functools import cache

import pytest

from bcsc.data.dataset import DataSet, data_root, load
from bcsc.data.registry import find_source


@cache
def _load(name: str) -> DataSet:
    return load(name, download=False)


@pytest.fixture(scope="session")
def real() -> Callable[[str], DataSet]:
    """Load a real data set once, or skip the test and say why."""

    def load_or_skip(name: str) -> DataSet:
        if find_source(name).missing(data_root()):
            pytest.skip(f"the files of {name} are not in {data_root()}: set BCSC_DATA or run `bcsc data get {name}`")
        return _load(name)

    return load_or_skip
