"""Whatever is in a folder or a plan that a command is given: one line and exit code 2, or an honest run's numbers."""

import io
import json
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bcsc.cli import main
from bcsc.errors import BcscError
from bcsc.experiments.catalog import plan_text
from bcsc.experiments.planning.plan_file import experiment_from_toml
from bcsc.experiments.study import EXPERIMENT_FILE, PLAN_FILE
from bcsc.experiments.tuning import DECISIONS_FILE, Candidate, Decision, write_decisions
from bcsc.runs.build import check_setting
from bcsc.runs.run import RunOptions, run
from bcsc.runs.spec import RunSpec, spec_to_toml, toml_value
from bcsc.training.checkpoint import RUN, checkpoint_content, read_checkpoint
from bcsc.training.history import MEASURED_BY_THE_CLOCK
from bcsc.training.watcher import Watcher
from tests.hostile import FEW, JSON_VALUES, MANY, NONSENSE, VALUES, changed, places
from tests.run_folders import write_study

BASES = ("sgd", "adamw", "adagrad")
# What no check can tell from an honest run's: what was measured, and what was learned.
DATA = ("rows", "losses", "seconds", "rank_states", "model")


class StopAfter(Watcher):
    """Ends a run from outside, as a crash does."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def after_step(self, loss: torch.Tensor) -> None:
        self.steps -= 1
        if self.steps == 0:
            raise KeyboardInterrupt


def spec_of(base: str) -> RunSpec:
    return RunSpec(
        data="digits", model="lenet4", blocks=2, epochs=2, batch_size=16, subset=32, threads=1, optimizer=base, lr=0.01
    )


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[dict[str, float]]]]:
    """For each base a run that was cut off inside its second epoch, and what an unbroken one measures."""
    found = {}
    for base in BASES:
        root, spec = tmp_path_factory.mktemp(base), spec_of(base)
        (root / "run.toml").write_text(spec_to_toml(spec))
        whole = run(spec, root / "whole", RunOptions(watcher=Watcher())).history
        with pytest.raises(KeyboardInterrupt):
            run(spec, root / "broken", RunOptions(checkpoint_every=1, watcher=StopAfter(7)))
        found[base] = root, [measured(row._asdict()) for row in whole]
    return found


def measured(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if name not in MEASURED_BY_THE_CLOCK}


def code_of(*arguments: object) -> int:
    """The exit code of a command, which says in one line what is wrong, and in one each what a report leaves out."""
    with redirect_stderr(io.StringIO()) as errors, redirect_stdout(io.StringIO()):
        code = main([str(argument) for argument in arguments])
    said = errors.getvalue()
    assert code in (0, 2, 3), said
    assert len([line for line in said.splitlines() if not line.startswith("left out: ")]) == (code != 0), said
    return code


@FEW
@given(base=st.sampled_from(BASES), data=st.data(), value=VALUES, gone=st.booleans())
def test_a_forged_checkpoint_is_refused_or_ends_as_an_honest_run(broken_off, base, data, value, gone) -> None:
    root, expected = broken_off[base]
    state = read_checkpoint(root / "broken" / "checkpoint.pt")
    place = data.draw(st.sampled_from(list(places(state))))
    forged = changed(state, place, value, gone=gone)
    shutil.rmtree(root / "forged", ignore_errors=True)
    shutil.copytree(root / "broken", root / "forged")
    (root / "forged" / "checkpoint.previous.pt").unlink()
    if place[0] == RUN:
        content = checkpoint_content(forged, forged.pop(RUN, ""))
        (root / "forged" / "checkpoint.pt").write_bytes(content)
    else:  # as before there were digests
        del forged[RUN]
        torch.save(forged, root / "forged" / "checkpoint.pt")
    code = code_of("train", "--config", root / "run.toml", "--out", root / "forged")
    if code == 0 and place[0] not in DATA and place[:2] != ("optimizer", "state"):
        lines = (root / "forged" / "metrics.jsonl").read_text().splitlines()
        assert [measured(json.loads(line)) for line in lines] == expected


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with every file that there can be in one."""
    root = write_study(
        tmp_path_factory.mktemp("study"), "outliers", epochs=2, seeds=[0, 1], blocks=[2], models=["lenet4"]
    )
    (root / PLAN_FILE).write_text(plan_text("outliers"))
    cell = next(iter(experiment_from_toml(plan_text("outliers"), "outliers", "plan").cells()))
    tried = (Candidate({"lr": 0.1}, (50.0, 51.0)), Candidate({"lr": 0.2}, (52.0, 53.0)))
    write_decisions(root, {cell: Decision({"lr": 0.2}, tried, 1.5, ("the largest was the best",))})
    return root


@pytest.fixture(scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcsc.reports.page.plotly_js", lambda: "")
        patch.setattr("bcsc.reports.write.write_figures", lambda *_: [])
        yield


SIDE_FILES = (EXPERIMENT_FILE, DECISIONS_FILE, PLAN_FILE, "summary.json", "origin.json")


@FEW
@pytest.mark.usefixtures("_quick")
@given(name=st.sampled_from(SIDE_FILES), data=st.data(), value=JSON_VALUES)
def test_a_report_is_made_whatever_a_file_of_the_study_holds(study: Path, name, data, value) -> None:
    path = next(study.rglob(name))
    before = path.read_bytes()
    if name == PLAN_FILE or data.draw(st.booleans()):
        content = data.draw(NONSENSE | st.just(json.dumps(value).encode()))
    else:
        table = json.loads(before)
        content = json.dumps(changed(table, data.draw(st.sampled_from(list(places(table)))), value)).encode()
    path.write_bytes(content)
    try:
        assert code_of("report", study) == 0
    finally:
        path.write_bytes(before)


@MANY
@given(data=st.data(), value=JSON_VALUES)
def test_any_value_of_any_key_of_a_plan_is_taken_or_refused(data, value) -> None:
    plan = tomllib.loads(plan_text("outliers"))
    changed_plan = changed(plan, data.draw(st.sampled_from(list(places(plan)))), value)
    text = "".join(f"{toml_value(key)} = {as_toml(item)}\n" for key, item in changed_plan.items())
    with suppress(BcscError):
        experiment_from_toml(text, "plan", "plan.toml", check_setting).runs()


def as_toml(value: Any) -> str:
    """A value as TOML writes it; what TOML has no word for is a text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_value(key)} = {as_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return str(value) if isinstance(value, float) else toml_value("nothing" if value is None else value)
