"""FSDP2: parameters, gradients and the optimizer's state in shards, one per process, and in checkpoints.

torchrun --standalone --nproc-per-node 2 examples/fsdp2.py [FOLDER [CHECKPOINT_TO_GO_ON_FROM]]
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
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
state = {"model": model, "optimizer": bcsc.DistributedState(model, optimizer), "loader": loader}
if len(sys.argv) > 2:  # of any number of processes
    dcp.load(state, checkpoint_id=sys.argv[2])

for epoch in range(optimizer.epoch, 4):
    loader.set_epoch(epoch)
    for number, (images, labels) in enumerate(loader, start=whole.start):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels) * batches.loss_weight(number)
        loss.backward()
        optimizer.step()
    dcp.save(state, checkpoint_id=f"{sys.argv[1] if len(sys.argv) > 1 else 'fsdp2'}/epoch-{epoch}")

with torch.no_grad():
    right = (model(digits.test_images / 255).argmax(1) == digits.test_labels).float().mean().item()
if rank == 0:
    print(f"{num_ranks} processes, test accuracy {100 * right:.1f} %", flush=True)
dist.barrier()
dist.destroy_process_group()
os._exit(0)  # at once: gloo's threads may still let go of a tensor, which aborts the process while Python shuts down
