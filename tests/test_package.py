"""What the package says of itself agrees with what CI tries."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_versions_of_python_are_those_that_the_workflow_tries() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    (tried,) = re.findall(r"python-version: (\[.*\])", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert named == re.findall(r"3\.\d+", tried) == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_core_needs_torch_and_numpy_alone() -> None:
    assert [re.split(r"\W", name)[0] for name in PROJECT["dependencies"]] == ["torch", "numpy"]


def test_whoever_develops_has_every_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    named = {
        name for extra in ("dev", "all") for name in re.findall(r"\w+", re.search(r"\[(.*)\]", extras[extra][0])[1])
    }
    assert extras.keys() - {"dev"} == named
