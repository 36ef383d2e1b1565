"""BCSC in a training loop of your own: one optimizer around another, and one sampler.

python examples/quickstart.py
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bcsc

torch.manual_seed(0)
inputs = torch.randn(2_000, 20)
labels = (inputs[:, :3].sum(1) > 0).long()
dataset = TensorDataset(inputs, labels)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))

base = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
optimizer = bcsc.BlockCyclic(base, num_blocks=8, seed=0)
batches = bcsc.BlockCyclicSampler(len(dataset), batch_size=128, num_blocks=8, seed=0)
loader = DataLoader(dataset, batch_sampler=batches)

for epoch in range(3):
    optimizer.set_epoch(epoch)
    batches.set_epoch(epoch)
    for x, y in loader:  # inner steps in the order (t, j): j runs fastest
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss of the last batch {loss.item():.3f}")
