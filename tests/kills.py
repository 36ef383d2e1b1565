"""Kills runs at random moments, over all methods, bases and masks, and sees that each ends as an unbroken one does.

``make kills`` makes 200, and its outcome is a record, ``benchmarks/kills/outcome.json``; a test of the suite makes 20.
The moments are drawn from a seed; where in a run they fall, the machine decides.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import NamedTuple

import torch

from bcsc.choices import MASKS
from bcsc.optim.methods import METHODS
from bcsc.origin import now, source_commit
from tests.unit.runs import tiny_run
from tests.unit.runs.test_exact_continuation import assert_all_readable, assert_same_run

KILLS_OF_A_RUN = 2  # so that 200 go through about every method with every base and mask
BASES = ("sgd", "adamw", "adagrad", "rmsprop", "rprop")
RECORD = Path(__file__).parents[1] / "benchmarks" / "kills" / "outcome.json"
Case = dict[str, str]


class Outcome(NamedTuple):
    """How often runs were killed that all ended with the bits of an unbroken one, and over how many of the cases."""

    kills: int
    runs: int
    cases: int
    of_cases: int


def every_case() -> list[Case]:
    """Every method with every base and mask that it takes."""
    return [
        {"method": name, "optimizer": base, "mask": mask}
        for name, base, mask in product(METHODS, BASES, MASKS)
        if mask == "update" or not METHODS[name].moves
    ]


def cases(chance: random.Random) -> Iterator[Case]:
    """All of them in random order, over and over."""
    every = every_case()
    chance.shuffle(every)
    return cycle(every)


def kill_until_it_ends(folder: Path, case: Case, longest: float, chance: random.Random) -> int:
    """Start a run again after every kill, until it comes to its end; how often it was killed."""
    fork = multiprocessing.get_context("fork")  # torch is loaded already: a child is at work within milliseconds
    kills = 0
    while True:
        child = fork.Process(target=tiny_run.train, args=(folder,), kwargs=case)
        child.start()
        child.join(chance.uniform(0, longest / 2) if kills < KILLS_OF_A_RUN else None)
        if child.exitcode is not None:
            assert child.exitcode == 0, case
            return kills
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += 1
        if folder.exists():
            assert_all_readable(folder)


def kill_and_compare(root: Path, count: int, seed: int = 0, least_runs: int = 0) -> Outcome:
    """Make at least so many kills in so many runs, all of which end as they would have without."""
    chance, of_cases = random.Random(seed), len(every_case())
    kills = 0
    for number, case in enumerate(cases(chance), start=1):
        whole, broken = root / f"{number}-whole", root / f"{number}-broken"
        began = time.monotonic()
        tiny_run.train(whole, **case)
        kills += kill_until_it_ends(broken, case, time.monotonic() - began, chance)
        assert_same_run(broken, whole)
        if kills >= count and number >= least_runs:
            return Outcome(kills, number, min(number, of_cases), of_cases)
    raise AssertionError("there are no cases")


def main() -> None:
    """Kill as often as asked, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as root:
        outcome = kill_and_compare(Path(root), arguments.count, arguments.seed, least_runs=len(every_case()))
    about = {"seed": arguments.seed, "commit": source_commit(), "date": now()}
    RECORD.write_text(json.dumps({**outcome._asdict(), **about}, indent=1) + "\n")
    print(f"{outcome.kills} kills in {outcome.runs} runs: all ended with the bits of an unbroken run")


if __name__ == "__main__":
    main()
