"""Every plan in ``studies`` can be run, and what is on record of it follows it as it stands."""

from pathlib import Path

import pytest

from bcsc.experiments.planning.plan_file import read_plan
from bcsc.runs.build import check_setting

REPOSITORY = Path(__file__).parents[3]
PLANS = sorted((REPOSITORY / "studies").rglob("*.toml"))
RECORDED = [plan for plan in PLANS if (REPOSITORY / "records" / plan.stem).exists()]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_of_a_study_has_something_to_run_and_a_question(plan: Path) -> None:
    experiment, _ = read_plan(plan, check_setting)
    assert experiment.cells()
    assert experiment.question.endswith("?")


@pytest.mark.parametrize("plan", RECORDED, ids=lambda plan: plan.stem)
def test_a_record_holds_the_plan_that_it_follows(plan: Path) -> None:
    assert (REPOSITORY / "records" / plan.stem / "plan.toml").read_text() == plan.read_text()
