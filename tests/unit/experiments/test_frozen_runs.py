"""The plans of the paper give, spec by spec, the runs that were planned when its experiments were Python literals.

Changed since: AdaGrad and AdaDelta have their own rates (docs/decisions/0004).
"""

import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from bcsc.experiments.catalog import EXPERIMENTS, cut_down
from bcsc.runs.spec import RunSpec

FROZEN = json.loads(Path(__file__).with_name("frozen_runs.json").read_text())


@pytest.mark.parametrize("frozen", FROZEN["plans"], ids=lambda frozen: f"{frozen['experiment']}-{frozen['cut']}")
def test_a_plan_gives_the_same_runs_as_ever(frozen: dict[str, Any]) -> None:
    experiment = cut_down(EXPERIMENTS[frozen["experiment"]], **frozen["cut"])
    expected = [(name, cell, RunSpec(**{**FROZEN["defaults"], **changed})) for name, cell, changed in frozen["runs"]]
    assert [(run.name, list(astuple(run.cell)), run.spec) for run in experiment.runs()] == expected
    assert experiment.note == frozen["note"]


def test_every_experiment_is_frozen_whole_and_cut_down() -> None:
    assert {(frozen["experiment"], bool(frozen["cut"])) for frozen in FROZEN["plans"]} == {
        (name, is_cut) for name in EXPERIMENTS for is_cut in (False, True)
    }
