"""For information: what ``bcsc.training.memory`` gains. It holds for a whole process, so each way has one of its own.

``python -m benchmarks.goals.memory keep 128 4`` prints the CPU seconds of a forward-backward of MobileNet.
"""

import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

from bcsc import models
from bcsc.training.memory import keep_freed_memory
from benchmarks.clock import Ratio, Size

NETWORK = "mobilenet"
WAYS = ("keep", "give back")


def measure(size: Size) -> list[Ratio]:
    """Both ways in turns, and the ratio of their medians."""
    arguments = [str(size.pick(128, 2)), str(size.pick(4, 1))]
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(size.pick(2, 1)):
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.goals.memory", way, *arguments]
            seconds[way].append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    medians = {way: statistics.median(values) for way, values in seconds.items()}
    name = f"forward-backward, freed memory kept / given back, {NETWORK}"
    return [Ratio(3, name, medians["keep"] / medians["give back"], None, medians)]


def seconds_of_a_step(way: str, batch_size: int, num_steps: int) -> float:
    """The median over some steps, on one thread, of a process that keeps what torch frees or gives it back."""
    if way == "keep":
        keep_freed_memory()
    torch.set_num_threads(1)
    network = models.build(NETWORK, seed=0)
    images, labels = torch.randn(batch_size, 3, 32, 32), torch.arange(batch_size) % 10
    seconds = []
    for _ in range(2 + num_steps):  # the heap settles in the first two
        network.zero_grad()
        began = time.process_time()
        F.cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[2:])


if __name__ == "__main__":
    print(seconds_of_a_step(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
