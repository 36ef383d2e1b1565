"""A small network in double precision, its data, and a trainer for it; the same on every rank."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from bcsc.distributed.block_gradients import sum_before_steps
from bcsc.distributed.block_parallel import BlockParallel
from bcsc.distributed.collectives import Ranks
from bcsc.distributed.division import Division
from bcsc.optim.methods import build_method
from bcsc.runs.batches import LoaderData
from bcsc.training.trainer import Plan, Trainer
from bcsc.training.watcher import Watcher

NUM_SAMPLES, BATCH_SIZE = 21, 8  # the last mini-batch has 5 samples, and with size 10 only 1


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()


def samples() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(NUM_SAMPLES, 3, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, torch.randint(4, (NUM_SAMPLES,), generator=generator))


def base_optimizer(model: nn.Module, name: str) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    return getattr(torch.optim, name)(model.parameters(), lr=0.01)


def trainer(
    ranks: Ranks,
    num_blocks: int,
    mask: str,
    *,
    method: str = "bcsc",
    base: str = "sgd",
    parallel: str = "exact",
    batch_size: int = BATCH_SIZE,
    model: nn.Module | None = None,
    exclude: int | None = None,
    **options: object,
) -> Trainer:
    model = model or network()
    if exclude is not None:
        options["exclude"] = [list(model.parameters())[exclude]]
    optimizer, sampler = build_method(
        method,
        base_optimizer(model, base),
        num_samples=NUM_SAMPLES,
        batch_size=batch_size,
        num_blocks=num_blocks,
        mask=mask,
        **options,
    )
    division = Division(ranks.rank, ranks.size, "steps" if parallel == "blocks" else "samples")
    device = torch.device("cpu")
    per_step = sampler.batches_per_step
    data = LoaderData(samples(), samples(), sampler, per_step, device=device, division=division)
    plan = Plan(epochs=2, learning_rate=lambda _: 0.1, loss_fn=F.cross_entropy, seed=0, device=device, ranks=ranks)
    stepped = BlockParallel(optimizer, ranks) if parallel == "blocks" else optimizer
    if parallel == "exact" and not ranks.alone:
        sum_before_steps(optimizer, ranks)
    return Trainer(model, stepped, data, plan)


def trained(ranks: Ranks, *arguments: object, **options: object) -> Trainer:
    run = trainer(ranks, *arguments, **options)
    run.run(lambda: None, lambda: False, Watcher())
    return run


def weights(run: Trainer) -> Tensor:
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def measurements(run: Trainer) -> list[list[float]]:
    names = ("train_loss", "train_loss_std", "test_loss", "test_accuracy", "gradient_evaluations")
    return [[getattr(row, name) for name in names] for row in run.rows]
