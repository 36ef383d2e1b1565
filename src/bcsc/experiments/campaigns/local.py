"""The local engine: every run a process of its own, the threads divided among those that run together."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from bcsc.errors import check_at_least
from bcsc.experiments.campaigns.campaign import Job

TRAIN = (sys.executable, "-m", "bcsc", "train")
POLL_SECONDS = 0.2
SMALL_NETWORKS = ("lenet4",)  # two runs on a thread each take half the time of one by one on two threads


def jobs_at_a_time(jobs: Sequence[Job], num_cores: int) -> int:
    """One job for each core where all networks are small, else one."""
    small = all(job.spec.model in SMALL_NETWORKS for job in jobs)
    return max(1, min(num_cores, len(jobs))) if small else 1


def usable_cores() -> int:
    """How many cores this process may use; all of them where, as on macOS and Windows, one cannot ask."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def threads_of_a_run(num_cores: int, num_jobs: int, asked_for: str) -> int:
    """An equal share of the cores, or what ``OMP_NUM_THREADS`` asks for if that is fewer."""
    share = max(1, num_cores // num_jobs)
    return min(share, max(1, int(asked_for))) if asked_for.isdecimal() else share


class LocalProcesses:
    """Carries out jobs by ``bcsc train``, ``num_jobs`` of them at a time, or as many as suit the networks."""

    def __init__(self, num_jobs: int | None = None, train: Sequence[str] = TRAIN) -> None:
        self.num_jobs = num_jobs if num_jobs is None else check_at_least("jobs", num_jobs, 1)
        self.train = tuple(train)
        self.running: list[Job] = []

    def carry_out(self, jobs: Sequence[Job]) -> Generator[list[tuple[Job, int]]]:
        num_cores = usable_cores()
        num_jobs = self.num_jobs or jobs_at_a_time(jobs, num_cores)
        threads = threads_of_a_run(num_cores, num_jobs, os.environ.get("OMP_NUM_THREADS", ""))
        waiting = deque(jobs)
        running: list[tuple[Job, subprocess.Popen[bytes]]] = []
        try:
            while waiting or running:
                while waiting and len(running) < num_jobs:
                    job = waiting.popleft()
                    running.append((job, self._start(job, threads)))
                ended = [(job, code) for job, process in running if (code := process.poll()) is not None]
                running = [(job, process) for job, process in running if process.returncode is None]
                self.running = [job for job, _ in running]
                yield ended
                if not ended:
                    time.sleep(POLL_SECONDS)
        finally:
            interrupt([process for _, process in running])

    def command(self, job: Job) -> str:
        return shlex.join(self._arguments(job))

    def _arguments(self, job: Job) -> list[str]:
        return [*self.train, "--config", str(job.config), "--out", str(job.folder)]

    def _start(self, job: Job, threads: int) -> "subprocess.Popen[bytes]":
        """In a session of its own, so that Ctrl-C reaches it once: from us."""
        with job.log.open("ab") as log:
            return subprocess.Popen(
                self._arguments(job),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                start_new_session=True,
            )


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Let a scheduler's request to end do what Ctrl-C does, so that no run is left behind on its own."""
    if threading.current_thread() is not threading.main_thread():  # no other is sent signals, or may ask for them
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interrupt(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Ask each to save itself and wait until it has; a second Ctrl-C ends them at once.

    By SIGTERM, which a shell does not have its background jobs ignore. On Windows, where a process cannot be asked, it
    ends at once and goes on from its last checkpoint.
    """
    alive = [process for process in processes if process.poll() is None]
    try:
        for process in alive:
            process.terminate()
        for process in alive:
            process.wait()
    except KeyboardInterrupt:
        for process in alive:
            process.kill()
        raise
