"""What people write instead: the usual training script, and BCSC as a reader of the paper would first write it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.problem import BATCH, BLOCKS, CIFAR10, RECIPE


class ImageByImage(Dataset[tuple[Tensor, int]]):
    """Each image is scaled, padded, cropped, flipped and normalised by itself."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images, labels
        self.mean, self.std = (torch.tensor(values)[:, None, None] for values in (CIFAR10.mean, CIFAR10.std))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        top, left, flip = (int(torch.randint(most, ())) for most in (9, 9, 2))
        image = F.pad(self.images[index], (4, 4, 4, 4))[:, top : top + 32, left : left + 32]
        image = image.flip(-1) if flip else image
        return (image.float().div(255) - self.mean) / self.std, int(self.labels[index])


def plain_lenet4() -> nn.Module:
    """The same network as an ordinary module: ReLU before pooling, PyTorch's default layout."""
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10)),
    )


def sgd_epoch(images: Tensor, labels: Tensor) -> float:
    """One epoch of the usual script."""
    model = plain_lenet4()
    optimizer = torch.optim.SGD(model.parameters(), **RECIPE)
    total = 0.0
    for x, y in DataLoader(ImageByImage(images, labels), BATCH, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
        total += loss.item()
    return total


def bcsc_epoch(images: Tensor, labels: Tensor) -> float:
    """One epoch of Algorithm 1, word by word: a mask per block, a shuffled loader per block, one optimizer."""
    model = plain_lenet4()
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, **RECIPE)
    block_of = torch.randperm(sum(p.numel() for p in parameters)) % BLOCKS
    masks = [
        [part.view_as(p) for part, p in zip(split_like(block_of == j, parameters), parameters, strict=True)]
        for j in range(BLOCKS)
    ]
    loaders = [DataLoader(ImageByImage(images, labels), BATCH, shuffle=True, num_workers=1) for _ in range(BLOCKS)]
    total = 0.0
    for batches in zip(*loaders, strict=True):
        for (x, y), mask in zip(batches, masks, strict=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            torch.autograd.backward(loss)
            before = [p.detach().clone() for p in parameters]
            optimizer.step()
            with torch.no_grad():
                for p, old, inside in zip(parameters, before, mask, strict=True):
                    p.copy_(torch.where(inside, p, old))
            total += loss.item()
    return total


def split_like(flat: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """A flat vector in parts as long as the parameters."""
    return list(torch.split(flat, [p.numel() for p in parameters]))
