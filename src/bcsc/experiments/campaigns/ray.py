"""The Ray engine: every run a task of a cluster. Needs no file system that the machines share.

A task trains in a folder of its own and sends the driver what is in it after every epoch. If its worker is lost, the
driver submits the run again together with what it has, and the run continues from its last checkpoint.
"""

import os
import platform
import shlex
import signal
import tempfile
import traceback
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bcsc.errors import BcscError, MissingExtraError
from bcsc.experiments.campaigns.campaign import Job
from bcsc.experiments.campaigns.local import POLL_SECONDS, TRAIN
from bcsc.runs.folder import RunFolder
from bcsc.runs.run import RunOptions, run
from bcsc.runs.spec import RunSpec
from bcsc.runs.watch import PlainWatcher

MAX_LOSSES = 3  # of workers, for one run; then it has failed


class TaskReport(NamedTuple):
    """What a task sends: the run's name, the files of its folder, and what there is to add to its log."""

    name: str
    files: dict[str, bytes]
    log: str


class Reporter(PlainWatcher):
    """Sends the folder and the log's new lines after every epoch."""

    def __init__(self, name: str, folder: Path, epochs: int, outbox: Any) -> None:
        super().__init__(epochs)
        self._name, self._folder, self._outbox = name, folder, outbox
        self._lines: list[str] = []
        self.say(f"carried out by process {os.getpid()} on {platform.node()}")

    def say(self, text: str) -> None:
        """A line of the log."""
        self._lines.append(f"{text}\n")

    def begin_epoch(self, epoch: int, step: int, steps: int, samples_per_step: float) -> None:
        """The epoch before has just been saved."""
        self.send()

    def send(self) -> None:
        """Send what is there now."""
        self._outbox.put(TaskReport(self._name, RunFolder(self._folder).files(), "".join(self._lines)))
        self._lines.clear()


def carry_out_run(name: str, spec: RunSpec, files: dict[str, bytes], outbox: Any) -> int:
    """On a worker: begin or continue a run; the exit code that ``bcsc train`` would have."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        RunFolder(folder).write_files(files)
        reporter = Reporter(name, folder, spec.epochs, outbox)
        try:
            run(spec, folder, RunOptions(watcher=reporter))
            code = 0
        except BcscError as error:
            reporter.say(f"bcsc: {error}")
            code = error.exit_code
        except Exception:  # a mistake of ours: it belongs in the log of this run and stops no other
            reporter.say(traceback.format_exc())
            code = 1
        reporter.send()
    return code


class RayTasks:
    """Carries out jobs on a Ray cluster, as many at a time as it has CPUs or GPUs for.

    A run asks for as many CPUs as it has threads (one if that is not set), and for a GPU if its device is one.

    Args:
        address: of a cluster that is there, such as ``auto`` or ``host:6379``; without it one is started here.
    """

    def __init__(self, address: str | None = None) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("The Ray engine needs ray: pip install 'bcsc[ray]'") from error
        self._ray = ray
        self.address = address
        self.running: list[Job] = []

    def carry_out(self, jobs: Sequence[Job]) -> Generator[list[tuple[Job, int]]]:
        from ray.util.queue import Queue

        self._join_cluster()
        outbox = Queue(actor_options={"num_cpus": 0})
        losses = dict.fromkeys((job.name for job in jobs), 0)
        by_name = {job.name: job for job in jobs}
        running = {self._submit(job, outbox): job for job in jobs}
        try:
            while running:
                done, _ = self._ray.wait(list(running), num_returns=len(running), timeout=POLL_SECONDS)
                take_in(outbox, by_name)
                self.running = [job for job in running.values() if job.folder.exists()]  # the others wait for a CPU
                ended = []
                for task in done:
                    job = running.pop(task)
                    code = self._exit_code(task, job, losses)
                    if code is None:
                        running[self._submit(job, outbox)] = job
                    else:
                        ended.append((job, code))
                yield ended
        finally:
            self._interrupt(list(running))
            take_in(outbox, by_name)
            outbox.shutdown()

    def _join_cluster(self) -> None:
        """Unless there is one already. Ray puts a handler of its own in the place of the campaign's, so put it back."""
        if not self._ray.is_initialized():
            on_sigterm = signal.getsignal(signal.SIGTERM)
            options = {"address": self.address} if self.address else {"include_dashboard": False}
            self._ray.init(**options, log_to_driver=False)
            signal.signal(signal.SIGTERM, on_sigterm)

    def command(self, job: Job) -> str:
        return shlex.join([*TRAIN, "--config", str(job.config), "--out", str(job.folder)])

    def _submit(self, job: Job, outbox: Any) -> Any:
        needs = {"num_cpus": job.spec.threads or 1, "num_gpus": int(job.spec.device.startswith("cuda"))}
        task = self._ray.remote(carry_out_run).options(**needs, max_retries=0, name=job.name)
        return task.remote(job.name, job.spec, RunFolder(job.folder).files(), outbox)

    def _exit_code(self, task: Any, job: Job, losses: dict[str, int]) -> int | None:
        """How a task ended; nothing if its worker was lost and it may try again."""
        try:
            code: int = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            losses[job.name] += 1
            add_to_log(job, f"the worker was lost ({losses[job.name]} times by now): {type(error).__name__}\n")
            return 1 if losses[job.name] > MAX_LOSSES else None
        return code

    def _interrupt(self, tasks: Sequence[Any]) -> None:
        """Ask each to save itself and wait until it has."""
        for task in tasks:
            self._ray.cancel(task, force=False)
        for task in tasks:
            with suppress(self._ray.exceptions.RayError):  # cancelled before it had begun
                self._ray.get(task)


def take_in(outbox: Any, by_name: dict[str, Job]) -> None:
    """Write what the tasks have sent into the driver's folders."""
    for _ in range(outbox.qsize()):
        report = outbox.get()
        job = by_name[report.name]
        RunFolder(job.folder).write_files(report.files)
        add_to_log(job, report.log)


def add_to_log(job: Job, text: str) -> None:
    """Append to the log of a run."""
    with job.log.open("a", encoding="utf-8") as log:
        log.write(text)
