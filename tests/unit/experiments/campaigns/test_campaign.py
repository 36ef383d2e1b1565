"""A campaign does what is left to do, and nothing that happens to one run happens to another."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bcsc.errors import InvalidArgumentError
from bcsc.experiments.campaigns import local
from bcsc.experiments.campaigns.campaign import Engine, Job, outcomes_in_words, run_campaign, share_done, under_way
from bcsc.experiments.campaigns.local import LocalProcesses, jobs_at_a_time, threads_of_a_run
from bcsc.experiments.campaigns.progress import Lines
from bcsc.runs.folder import RunFolder
from bcsc.runs.spec import RunSpec, spec_to_toml
from tests.fake_trainer import InThisProcess
from tests.run_folders import write_run

REPOSITORY = Path(__file__).parents[4]
FAKE = (sys.executable, "-m", "tests.fake_trainer")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{REPOSITORY / 'src'}{os.pathsep}{REPOSITORY}")


def job(root: Path, name: str, **settings: object) -> Job:
    return Job(name, RunSpec(**{"data": "quick", "epochs": 2, **settings}), root)


def campaign(jobs: list[Job], engine: Engine | None = None) -> dict[str, str]:
    """The outcome of every job: its state, and whether it was skipped."""
    outcomes = run_campaign(jobs, engine or InThisProcess(), Lines())
    return {o.job.name: f"{o.state}{' before' if o.skipped else ''}" for o in outcomes}


def starts(root: Path) -> list[str]:
    path = root / "runs" / "starts.txt"
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    ("models", "expected"),
    [(["lenet4"] * 9, 4), (["lenet4"] * 2, 2), (["lenet4", "resnet18"], 1), (["resnet18"] * 9, 1), ([], 1)],
)
def test_small_networks_run_side_by_side_on_a_core_each(tmp_path: Path, models: list[str], expected: int) -> None:
    assert jobs_at_a_time([job(tmp_path, "a", model=model) for model in models], num_cores=4) == expected


@pytest.mark.slow
def test_every_run_is_carried_out_and_the_same_again_does_no_work(tmp_path: Path) -> None:
    jobs = [job(tmp_path, name, seed=seed) for seed, name in enumerate("abc")]
    assert campaign(jobs, LocalProcesses(2, FAKE)) == dict.fromkeys("abc", "finished")
    assert sorted(starts(tmp_path)) == ["a", "b", "c"]
    assert campaign(jobs) == dict.fromkeys("abc", "finished before")
    assert len(starts(tmp_path)) == 3


@pytest.mark.slow
def test_a_failing_run_stops_no_other_and_is_named_with_the_command_to_retry_it(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "bad", data="failing"), job(tmp_path, "good")]
    engine = LocalProcesses(1, FAKE)
    outcomes = run_campaign(jobs, engine, Lines())
    assert {outcome.job.name: outcome.state for outcome in outcomes} == {"bad": "failed", "good": "finished"}
    text = outcomes_in_words(outcomes, engine)
    assert text.startswith("1 failed, 1 finished")
    assert "failed: bad: bcsc: the data set is on fire" in text
    assert f"retry: {sys.executable} -m tests.fake_trainer --config {jobs[0].config} --out {jobs[0].folder}" in text
    assert "good" not in text


def test_a_diverged_run_is_a_result_and_is_not_run_again(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "a", data="diverging")]
    assert campaign(jobs) == {"a": "diverged"}
    assert campaign(jobs) == {"a": "diverged before"}
    assert starts(tmp_path) == ["a"]


def test_a_broken_run_is_continued_in_its_folder(tmp_path: Path) -> None:
    broken = job(tmp_path, "a", epochs=4)
    write_run(broken.folder, broken.spec, state="running", epochs_done=3)
    assert share_done([broken], []) == 0.75
    assert campaign([broken]) == {"a": "finished"}
    assert [path.name for path in broken.folder.parent.iterdir() if path.is_dir()] == ["a"]


@pytest.mark.parametrize("name", ["run.toml", "summary.json", "metrics.jsonl"])
def test_a_truncated_run_is_set_aside_and_redone_alone(tmp_path: Path, name: str) -> None:
    jobs = [job(tmp_path, "a"), job(tmp_path, "b", seed=1)]
    campaign(jobs)
    damaged = jobs[0].folder / name
    damaged.write_bytes(damaged.read_bytes()[:-30])
    assert campaign(jobs) == {"a": "finished", "b": "finished before"}
    assert starts(tmp_path) == ["a", "b", "a"]
    assert (jobs[0].folder.parent / "a.aside-1" / name).exists()
    assert RunFolder(jobs[0].folder).read().is_finished


def test_a_deleted_run_is_redone_alone(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "a"), job(tmp_path, "b", seed=1)]
    campaign(jobs)
    for path in jobs[1].folder.iterdir():
        path.unlink()
    jobs[1].folder.rmdir()
    assert campaign(jobs) == {"a": "finished before", "b": "finished"}


def test_a_folder_of_another_spec_is_not_taken_for_finished(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a", RunSpec(data="quick", epochs=2, seed=9))
    campaign([job(tmp_path, "a", seed=0)])
    assert starts(tmp_path) == ["a"]


@pytest.mark.slow
def test_the_threads_are_divided_among_the_runs_of_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    campaign([job(tmp_path, "a")], LocalProcesses(3, FAKE))
    assert (tmp_path / "runs" / "starts.txt").read_text() == "a threads=2\n"


@pytest.mark.slow
def test_no_run_has_more_threads_than_were_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(6)))
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    campaign([job(tmp_path, "a")], LocalProcesses(1, FAKE))
    assert (tmp_path / "runs" / "starts.txt").read_text() == "a threads=4\n"


@pytest.mark.parametrize(("asked_for", "threads"), [("", 3), ("2", 2), ("8", 3), ("0", 1), ("2,1", 3), ("many", 3)])
def test_the_threads_of_a_run_are_its_share_at_most(asked_for: str, threads: int) -> None:
    assert threads_of_a_run(num_cores=6, num_jobs=2, asked_for=asked_for) == threads


def test_the_number_of_jobs_is_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="jobs must be a whole number of at least 1, got 0"):
        LocalProcesses(0)


CAMPAIGN = """
import signal, sys
from pathlib import Path
from types import SimpleNamespace
from bcsc.experiments.campaigns.local import LocalProcesses, sigterm_as_ctrl_c
from tests.unit.experiments.campaigns.test_campaign import FAKE, campaign, job
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests were started to ignore it
jobs = [job(Path(sys.argv[1]), name, data="slow", epochs=100, seed=seed) for seed, name in enumerate("abc")]
try:
    with sigterm_as_ctrl_c():
        campaign(jobs, LocalProcesses(2, FAKE))
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_reaches_every_run_starts_no_other_and_waits_until_each_has_saved_itself(
    tmp_path: Path, number: signal.Signals
) -> None:
    process = subprocess.Popen([sys.executable, "-c", CAMPAIGN, str(tmp_path)], cwd=REPOSITORY)
    running = [tmp_path / "runs" / name / "summary.json" for name in "ab"]
    deadline = time.monotonic() + 60
    while not all(path.exists() for path in running) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
    assert [json.loads(path.read_text())["state"] for path in running] == ["interrupted", "interrupted"]
    assert sorted(starts(tmp_path)) == ["a", "b"]
    done = {name: RunFolder(tmp_path / "runs" / name).read().summary.epochs_done for name in "ab"}
    assert all(0 < epochs < 100 for epochs in done.values())


def test_without_a_terminal_progress_is_a_line_per_tenth_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for percent in range(0, 101, 5):
        lines.show(percent / 100, "1/2 runs")
    assert capsys.readouterr().out.splitlines()[:2] == ["10% of the work, 1/2 runs", "20% of the work, 1/2 runs"]


def test_the_lines_begin_anew_with_other_runs(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    for share in (0.5, 1.0, 0.0, 0.5):
        lines.show(share, "runs")
    assert capsys.readouterr().out.splitlines() == [f"{share} of the work, runs" for share in ("50%", "100%", "50%")]


def test_a_line_says_how_a_run_ended_at_what_accuracy_and_after_how_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign([job(tmp_path, "a"), job(tmp_path, "b", data="diverging"), job(tmp_path, "c", data="failing")])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("[")]
    assert (
        lines[0] == f"[1/3] a: finished at {RunFolder(tmp_path / 'runs' / 'a').read().accuracy('final'):.2f} % in 96 s"
    )
    assert re.fullmatch(r"\[2/3\] b: diverged at \d\d\.\d\d % in 48 s", lines[1])
    assert lines[2] == "[3/3] c: failed"


def test_what_is_under_way_is_named_with_its_epoch(tmp_path: Path) -> None:
    jobs = [job(tmp_path, name, epochs=9) for name in "abcd"]
    write_run(jobs[1].folder, jobs[1].spec, state="running", epochs_done=3)
    assert under_way(jobs) == ", running a (epoch 1/9), b (epoch 4/9), 2 more"
    write_run(jobs[0].folder, jobs[0].spec, state="running", epochs_done=9)
    assert under_way(jobs[:1]) == ", running a (epoch 9/9)"
    assert under_way([]) == ""


@pytest.mark.slow
def test_the_local_engine_knows_what_is_running(tmp_path: Path) -> None:
    engine = LocalProcesses(2, FAKE)
    jobs = [job(tmp_path, name, seed=seed) for seed, name in enumerate("abc")]
    for path in ("runs", "configs", "logs"):
        (tmp_path / path).mkdir()
    for each in jobs:
        each.config.write_text(spec_to_toml(each.spec))
    seen = [[each.name for each in engine.running] for _ in engine.carry_out(jobs)]
    assert seen[0] == ["a", "b"]
    assert seen[-1] == []


def test_all_cores_count_where_a_process_cannot_ask_which_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.os, "cpu_count", lambda: 12)
    monkeypatch.delattr(local.os, "sched_getaffinity", raising=False)
    assert local.usable_cores() == 12
    monkeypatch.setattr(local.os, "cpu_count", lambda: None)
    assert local.usable_cores() == 1
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda _process: {0, 3}, raising=False)
    assert local.usable_cores() == 2


def test_a_run_is_asked_to_stop_by_a_signal_that_jobs_in_the_background_hear() -> None:
    """A shell has them ignore SIGINT, which whatever they start inherits."""
    ready = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('ready', flush=True)"
    ignoring = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); {ready}; signal.pause()"
    process = subprocess.Popen([sys.executable, "-c", ignoring], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        output.readline()
        local.interrupt([process])
    assert process.returncode == 7
