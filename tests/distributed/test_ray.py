"""A campaign on a Ray cluster ends complete, also when a worker is lost or it is interrupted on the way."""

import json
import os
import re
import signal
import sys

import pytest

from bcsc.errors import MissingExtraError
from bcsc.experiments.campaigns.campaign import Job, outcomes_in_words, run_campaign
from bcsc.experiments.campaigns.ray import RayTasks
from bcsc.runs.folder import RunFolder
from bcsc.runs.spec import RunSpec
from bcsc.training.history import MEASURED_BY_THE_CLOCK

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def cluster():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield ray
    ray.shutdown()


class Saboteur:
    """A board that does something once, when a run has finished its first epoch."""

    def __init__(self, job, deed):
        self.job, self.deed, self.done, self.lines = job, deed, False, []

    def say(self, line):
        self.lines.append(line)

    def show(self, share, label):
        if not self.done and self.job.epochs_done() >= 1:
            self.done = True
            self.deed(self.job)


def kill_worker(job):
    """Of the run, by the process that its log names."""
    pids = re.findall(r"carried out by process (\d+)", job.log.read_text())
    os.kill(int(pids[-1]), signal.SIGKILL)


def interrupt(job):
    raise KeyboardInterrupt


def digits(root, name, **settings):
    return Job(name, RunSpec(**{"data": "digits", "blocks": 2, "epochs": 6, "threads": 1, **settings}), root)


def without_clock(job):
    rows = [json.loads(line) for line in (job.folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in MEASURED_BY_THE_CLOCK} for row in rows]


def test_a_killed_worker_and_an_interruption_cost_nothing_but_time(cluster, tmp_path):
    jobs = [
        digits(tmp_path / "a", "first"),
        digits(tmp_path / "a", "second", seed=1),
        digits(tmp_path / "a", "wrong", data="no"),
    ]
    board = Saboteur(jobs[0], kill_worker)
    outcomes = run_campaign(jobs, RayTasks(), board)
    assert board.done
    assert {o.job.name: o.state for o in outcomes} == {"first": "finished", "second": "finished", "wrong": "failed"}
    assert "the worker was lost (1 times by now)" in jobs[0].log.read_text()
    assert "Continuing" in jobs[0].log.read_text()
    assert RunFolder(jobs[0].folder).read().origin["resumed"] == 1
    assert "failed: wrong: bcsc: " in outcomes_in_words(outcomes, RayTasks())

    again = digits(tmp_path / "b", "first")
    with pytest.raises(KeyboardInterrupt):
        run_campaign([again], RayTasks(), Saboteur(again, interrupt))
    assert RunFolder(again.folder).read().summary.state != "finished"
    assert run_campaign([again], RayTasks(), Saboteur(again, lambda _: None))[0].state == "finished"
    assert without_clock(again) == without_clock(jobs[0])


def test_without_ray_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bcsc\[ray\]'"):
        RayTasks()
