"""FSDP2: parameters, gradients and the optimizer's state in shards, one per process.

torchrun --standalone --nproc-per-node 2 examples/fsdp2.py
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

import bcsc

dist.init_process_group("gloo")  # "nccl" on GPUs
rank, num_ranks = dist.get_rank(), dist.get_world_size()
digits = bcsc.data.load("digits")
train_set = TensorDataset(digits.train_images / 255, digits.train_labels)

torch.manual_seed(0)
model = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
fully_shard(model, mesh=init_device_mesh("cpu", (num_ranks,)))
base = torch.optim.AdamW(model.parameters(), lr=0.01)
whole = bcsc.BlockCyclicSampler(len(train_set), batch_size=64, num_blocks=4)
optimizer = bcsc.BlockCyclic(base, num_blocks=4, steps_per_epoch=whole.steps_per_epoch)
batches = bcsc.RankSampler(whole, rank, num_ranks)
loader = bcsc.BlockCyclicLoader(train_set, batches)

for _ in range(4):
    for number, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels) * batches.loss_weight(number)
        loss.backward()
        optimizer.step()

with torch.no_grad():
    right = (model(digits.test_images / 255).argmax(1) == digits.test_labels).float().mean().item()
if rank == 0:
    print(f"{num_ranks} processes, test accuracy {100 * right:.1f} %")
dist.destroy_process_group()
