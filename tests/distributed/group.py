"""Run a function in several processes that know each other, and collect what each returns."""

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from bcsc.distributed.collectives import Ranks


def in_process_group(size: int, function: Callable[..., Any], *arguments: Any, folder: Path) -> list[Any]:
    """What ``function(ranks, *arguments)`` returns on each of ``size`` ranks; arguments and results are picklable."""
    folder.mkdir(parents=True, exist_ok=True)
    mp.spawn(_work, args=(size, function, arguments, str(folder)), nprocs=size)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


def _work(rank: int, size: int, function: Callable[..., Any], arguments: tuple[Any, ...], folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(minutes=5))
    try:
        torch.save(function(Ranks(rank, size), *arguments), f"{folder}/{rank}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()
    os._exit(0)  # sharded parameters keep gloo's threads alive: those could abort while Python shuts down
