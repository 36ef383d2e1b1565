"""Goal 5: time grows in proportion to the blocks, the data and the parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bcsc.errors import MissingExtraError
from bcsc.models import count_parameters
from benchmarks.clock import Ratio, Size, interleaved
from benchmarks.goals.against import epoch_here
from benchmarks.goals.step import with_gradients
from benchmarks.problem import blockwise

LEAST_STRAIGHT = 0.99


@dataclass(frozen=True)
class Line:
    """Seconds against something that grows."""

    quantity: str
    sizes: list[float]
    seconds: list[float]

    @property
    def straightness(self) -> float:
        """The share of the variance that a straight line explains."""
        slope, intercept = self.fit()
        residuals = np.array(self.seconds) - (slope * np.array(self.sizes) + intercept)
        return float(1 - residuals.var() / np.array(self.seconds).var())

    def fit(self) -> tuple[float, float]:
        """Slope and intercept by least squares."""
        slope, intercept = np.polyfit(self.sizes, self.seconds, 1)
        return float(slope), float(intercept)


def timed(quantity: str, sizes: Sequence[int], action: Callable[[int], object], rounds: int) -> Line:
    """One line, its points taken in turns."""
    medians = interleaved({str(x): lambda x=x: action(x) for x in sizes}, rounds)  # type: ignore[misc]
    return Line(quantity, [float(x) for x in sizes], list(medians.values()))


def lines(size: Size) -> list[Line]:
    """Blocks and data size by epochs of LeNet4, parameters by steps of the optimizer."""
    per_block, rounds = size.pick(1_280, 128), size.pick(2, 1)
    blocks = timed("blocks M", [1, 2, 4, 8, 16][: size.pick(5, 3)], lambda m: epoch_here(per_block, m), rounds)
    counts = [n * per_block for n in (1, 2, 4, 8)[: size.pick(4, 3)]]
    data = timed("training images", counts, lambda n: epoch_here(n, 2), rounds)
    names = ["lenet4", "shufflenet", "mobilenet", "resnet18", "vgg19", "dpn92"][: size.pick(6, 3)]
    networks = {count_parameters(network): network for network in map(with_gradients, names)}
    steps = {count: blockwise(network).step for count, network in networks.items()}
    parameters = timed("parameters", sorted(networks), lambda count: steps[count](), size.pick(15, 1))
    return [blocks, data, parameters]


def ratios(measured: Sequence[Line]) -> list[Ratio]:
    """How far each is from straight."""
    return [
        Ratio(
            5,
            f"time against {line.quantity}: variance that a straight line leaves",
            1 - line.straightness,
            1 - LEAST_STRAIGHT,
            {f"{size:g}": seconds for size, seconds in zip(line.sizes, line.seconds, strict=True)},
        )
        for line in measured
    ]


def draw(measured: Sequence[Line], path: Path) -> None:
    """The points and the straight lines through them."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("The picture needs matplotlib: pip install 'bcsc[report]'") from error
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    titles = ("an epoch of LeNet4, 1,280 images", "an epoch of LeNet4, M = 2", "a step of BlockCyclic(SGD), M = 8")
    for axis, line, title in zip(figure.subplots(1, 3), measured, titles, strict=True):
        slope, intercept = line.fit()
        ends = np.array([0, max(line.sizes)])
        axis.plot(ends, slope * ends + intercept, color="0.7")
        axis.plot(line.sizes, line.seconds, "o")
        axis.set(xlabel=line.quantity, ylabel="seconds", title=title, xlim=0, ylim=0)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
