"""Accelerate, in one process or several: each has its part of every mini-batch, and the loader is not prepared.

accelerate launch examples/accelerate_loop.py [FOLDER]     # or: python, torchrun
"""

import sys

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bcsc

NUM_EPOCHS = 4
digits = bcsc.data.load("digits")
train_set = TensorDataset(digits.train_images / 255, digits.train_labels)
test_loader = DataLoader(TensorDataset(digits.test_images / 255, digits.test_labels), batch_size=50)

folder = sys.argv[1] if len(sys.argv) > 1 else "accelerate_loop"
accelerator = Accelerator(cpu=not torch.accelerator.is_available(), project_dir=folder)  # else torchrun is not noticed
torch.manual_seed(0)
model = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
whole = bcsc.BlockCyclicSampler(len(train_set), batch_size=64, num_blocks=4)
base = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
optimizer = bcsc.BlockCyclic(base, num_blocks=4, steps_per_epoch=whole.steps_per_epoch)
batches = bcsc.RankSampler(whole, accelerator.process_index, accelerator.num_processes)
loader = bcsc.BlockCyclicLoader(train_set, batches)
model, optimizer, test_loader = accelerator.prepare(model, optimizer, test_loader)
accelerator.register_for_checkpointing(loader)  # accelerator.load_state(...) then goes on inside the epoch

for epoch in range(whole.epoch, NUM_EPOCHS):
    loader.set_epoch(epoch)
    for number, batch in enumerate(loader, start=whole.start):
        images, labels = (tensor.to(accelerator.device) for tensor in batch)
        accelerator.backward(F.cross_entropy(model(images), labels) * batches.loss_weight(number))
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state(f"{folder}/epoch-{epoch}")

with torch.no_grad():
    right = [accelerator.gather_for_metrics(model(images).argmax(1) == labels) for images, labels in test_loader]
accelerator.print(f"test accuracy {100 * torch.cat(right).float().mean().item():.1f} %")
accelerator.end_training()
