"""Fine-tuning: frozen layers are in no block, and thawed ones join when the next epoch is cut.

python examples/fine_tuning.py
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import bcsc

digits = bcsc.data.load("digits")
features = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 64), nn.ReLU())


def images_and_labels(images: Tensor, labels: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """The five digits from ``first`` on, as classes 0 to 4."""
    chosen = (labels >= first) & (labels < first + 5)
    return images[chosen] / 255, labels[chosen] - first


def train(model: nn.Module, optimizer: bcsc.BlockCyclic, first: int, epochs: range) -> float:
    """Train on five digits; the accuracy on them."""
    train_set = TensorDataset(*images_and_labels(digits.train_images, digits.train_labels, first))
    loader = bcsc.BlockCyclicLoader(train_set, bcsc.BlockCyclicSampler(len(train_set), batch_size=32, num_blocks=4))
    for epoch in epochs:
        optimizer.set_epoch(epoch)
        loader.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
    images, labels = images_and_labels(digits.test_images, digits.test_labels, first)
    return 100 * (model(images).argmax(1) == labels).float().mean().item()


torch.manual_seed(0)
first_model = nn.Sequential(features, nn.Linear(64, 5))
optimizer = bcsc.BlockCyclic(torch.optim.SGD(first_model.parameters(), lr=0.3, momentum=0.9), num_blocks=4)
print(f"0 to 4: test accuracy {train(first_model, optimizer, 0, range(3)):.1f} %")

second_model = nn.Sequential(features, nn.Linear(64, 5))
features.requires_grad_(False)
before = [p.clone() for p in features.parameters()]
optimizer = bcsc.BlockCyclic(torch.optim.SGD(second_model.parameters(), lr=0.3, momentum=0.9), num_blocks=4)
print(f"5 to 9, only the last layer: test accuracy {train(second_model, optimizer, 5, range(2)):.1f} %")
assert all(torch.equal(p, q) for p, q in zip(features.parameters(), before, strict=True))

features.requires_grad_(True)
print(f"5 to 9, all layers: test accuracy {train(second_model, optimizer, 5, range(2, 4)):.1f} %")
