"""Time things in turns, so that a slow moment of the machine hits them alike, and keep the medians."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

Action = Callable[[], object]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """One number that was measured, and the most it should be; without a goal it is for information."""

    goal: int  # which of the six in docs/performance.md
    name: str
    value: float
    most: float | None
    seconds: Mapping[str, float]  # the medians behind it
    repeats: tuple[float, ...] = ()  # what it was each time, where it was measured more than once

    @property
    def verdict(self) -> str:
        """Whether the goal is met; neither met nor missed if it is nearer than the repeats are to each other."""
        if self.most is None:
            return ""
        if self.repeats and abs(self.value - self.most) < max(self.repeats) - min(self.repeats):
            return "neither"
        return "met" if self.value <= self.most else "missed"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "verdict": self.verdict}


def repeated(times: Sequence[Ratio]) -> Ratio:
    """The mean of what was measured several times."""
    first, repeats = times[0], tuple(one.value for one in times)
    seconds = {name: statistics.mean(one.seconds[name] for one in times) for name in first.seconds}
    return replace(first, value=statistics.mean(repeats), seconds=seconds, repeats=repeats)


@dataclass(frozen=True)
class Size:
    """How much to measure: all of it, or just enough to see that it runs."""

    tiny: bool = False

    def pick(self, full: int, tiny: int) -> int:
        """The number for this size."""
        return tiny if self.tiny else full


def now() -> float:
    """On one thread the CPU time of this process, which others on the machine disturb least; else the wall clock."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def seconds(action: Action, clock: Clock = now) -> float:
    """How long one call takes."""
    start = clock()
    action()
    return clock() - start


def interleaved(contestants: Mapping[str, Action], rounds: int, clock: Clock = now) -> dict[str, float]:
    """Each contestant's median seconds over rounds in which all take turns; one more round warms up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, action in contestants.items():
            times[name].append(seconds(action, clock))
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def ratio(goal: int, name: str, medians: Mapping[str, float], most: float | None) -> Ratio:
    """The first contestant's time over the second's."""
    ours, theirs, *_ = medians.values()
    return Ratio(goal, name, ours / theirs, most, dict(medians))
