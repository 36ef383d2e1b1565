"""Your own network and your own data, trained with BCSC in a folder that can be continued.

python examples/own_network_and_data.py [FOLDER]
"""

import sys

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import bcsc


class TwoSpirals(Dataset[tuple[Tensor, int]]):
    """Points on two interleaved spirals; the label says on which."""

    def __init__(self, num_points: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(num_points) % 2
        radius = torch.rand(num_points, generator=generator).sqrt()
        angle = 7 * radius + torch.pi * self.labels
        points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
        self.points = points + 0.02 * torch.randn(points.shape, generator=generator)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.points[index], int(self.labels[index])


def main() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    result = bcsc.train(
        network,
        TwoSpirals(2_000, seed=0),
        TwoSpirals(500, seed=1),
        out=sys.argv[1] if len(sys.argv) > 1 else "runs/two-spirals",
        method="bcsc",
        blocks=4,
        epochs=8,
        batch_size=50,
    )
    print(f"{len(result.history)} epochs, test accuracy {result.summary['test_accuracy']['final']:.1f} %")


if __name__ == "__main__":
    main()
