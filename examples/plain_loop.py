"""A loop of your own over real images, with validation. Run it again, and it goes on where it last saved.

python examples/plain_loop.py [CHECKPOINT]
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bcsc

NUM_EPOCHS = 4
checkpoint = Path(sys.argv[1] if len(sys.argv) > 1 else "plain_loop.pt")
digits = bcsc.data.load("digits")
train_set = TensorDataset(digits.train_images / 255, digits.train_labels)
test_loader = DataLoader(TensorDataset(digits.test_images / 255, digits.test_labels), batch_size=500)

torch.manual_seed(0)
model = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
base = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
optimizer = bcsc.BlockCyclic(base, num_blocks=4)
batches = bcsc.BlockCyclicSampler(len(train_set), batch_size=64, num_blocks=4)
loader = bcsc.BlockCyclicLoader(train_set, batches)  # takes num_workers and all else that a DataLoader takes
stateful = {"model": model, "optimizer": optimizer, "loader": loader}

if checkpoint.exists():
    for name, state in torch.load(checkpoint, weights_only=True).items():
        stateful[name].load_state_dict(state)
    print(f"goes on at step {optimizer.inner_step} of epoch {optimizer.epoch}")

for epoch in range(optimizer.epoch, NUM_EPOCHS):
    optimizer.set_epoch(epoch)
    loader.set_epoch(epoch)
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if optimizer.inner_step % 50 == 0:
            torch.save({name: each.state_dict() for name, each in stateful.items()}, checkpoint)
    with torch.no_grad():
        right = sum(int((model(images).argmax(1) == labels).sum()) for images, labels in test_loader)
    print(f"epoch {epoch}: test accuracy {100 * right / len(test_loader.dataset):.1f} %")
