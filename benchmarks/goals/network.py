"""Goal 3: the forward-backward itself, and what threads do to it."""

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import torch

from benchmarks import naive, problem
from benchmarks.clock import Ratio, Size, interleaved, ratio


def forward_backward(size: Size) -> list[Ratio]:
    """LeNet4 as trained here against the plain module, on as many threads as a run has and on one, as in a campaign."""
    contestants = {"here": problem.lenet4(), "plain": naive.plain_lenet4()}
    steps = {name: problem.ForwardBackward(network) for name, network in contestants.items()}
    all_threads = torch.get_num_threads()
    rows = []
    for threads in sorted({1, all_threads}):
        torch.set_num_threads(threads)
        name = f"forward-backward of LeNet4 / the plain module, threads: {threads}"
        rows.append(ratio(3, name, interleaved(steps, size.pick(60, 2)), 0.75))
    torch.set_num_threads(all_threads)
    return rows


def seconds_for(threads: int, num_steps: int) -> float:
    """The time of some steps in a process of its own."""
    torch.set_num_threads(threads)
    step = problem.ForwardBackward(problem.lenet4())
    step()
    start = time.perf_counter()
    for _ in range(num_steps):
        step()
    return time.perf_counter() - start


@contextmanager
def waiting(policy: str) -> Iterator[None]:
    """Let processes that start now wait for work as told: "active" spins, "passive" sleeps."""
    before = os.environ.get("OMP_WAIT_POLICY")
    os.environ["OMP_WAIT_POLICY"] = policy
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_WAIT_POLICY"]
        else:
            os.environ["OMP_WAIT_POLICY"] = before


def two_runs(size: Size) -> list[Ratio]:
    """Two runs side by side on a thread each, against one after the other on two threads that spin or sleep."""
    num_steps = size.pick(40, 2)
    pools = {}
    for policy in ("active", "passive"):
        with waiting(policy):
            pools[policy] = ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
            list(pools[policy].map(seconds_for, [1, 1], [1, 1]))  # starts the processes

    def one_by_one(policy: str) -> None:
        for _ in range(2):
            pools[policy].submit(seconds_for, 2, num_steps).result()

    contestants = {
        "side by side, one thread each": lambda: list(pools["active"].map(seconds_for, [1, 1], [num_steps] * 2)),
        "one by one, two threads, active": lambda: one_by_one("active"),
        "one by one, two threads, passive": lambda: one_by_one("passive"),
    }
    medians = interleaved(contestants, size.pick(2, 1), time.perf_counter)
    for pool in pools.values():
        pool.shutdown()
    ours, active, passive = medians.values()
    return [
        Ratio(3, "two runs of LeNet4 side by side / one by one on two threads", ours / active, None, medians),
        Ratio(3, "two threads that sleep while waiting / that spin", passive / active, None, medians),
    ]


def measure(size: Size) -> list[Ratio]:
    """The network, and how to run two of them."""
    return [*forward_backward(size), *two_runs(size)]
