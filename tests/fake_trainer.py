"""Stands in for ``bcsc train`` in tests of campaigns: the same arguments, files and exit codes, and no training.

Every start appends a line to ``starts.txt`` beside the runs. What it does is chosen by the data set of the spec:
``slow`` takes its time over an epoch, ``failing`` fails, ``diverging`` diverges; anything else finishes at once.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from bcsc.experiments.campaigns.campaign import Job
from bcsc.runs.folder import RunFolder
from bcsc.runs.spec import spec_from_toml
from tests.run_folders import write_run


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    folder, spec = arguments.out, spec_from_toml(arguments.config.read_text(), "config")
    with (folder.parent / "starts.txt").open("a") as starts:
        starts.write(f"{folder.name} threads={os.environ.get('OMP_NUM_THREADS')}\n")
    if spec.data == "failing":
        print("bcsc: the data set is on fire", file=sys.stderr, flush=True)
        return 2
    if spec.data == "diverging":
        write_run(folder, spec, state="diverged", epochs_done=1)
        return 3
    asked: list[int] = []
    if spec.data == "slow":
        signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    done = RunFolder(folder).epochs_done()
    while done < spec.epochs:
        done += 1
        write_run(folder, spec, state="running", epochs_done=done)
        if spec.data == "slow":
            time.sleep(0.1)
        if asked:
            write_run(folder, spec, state="interrupted", epochs_done=done)
            return 130
    write_run(folder, spec)
    return 0


class InThisProcess:
    """An engine that calls the fake trainer, which is quicker than starting it."""

    def __init__(self) -> None:
        self.running: list[Job] = []

    def carry_out(self, jobs: Sequence[Job]) -> Generator[list[tuple[Job, int]]]:
        for planned in jobs:
            yield [(planned, main(["--config", str(planned.config), "--out", str(planned.folder)]))]

    def command(self, planned: Job) -> str:
        return f"train {planned.name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
