"""Start and end of the group of processes that torchrun launched."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from bcsc.distributed.collectives import RankLostError, Ranks

NUMBERS = count()  # of the groups that were started in this process
PATIENCE = timedelta(seconds=60)  # how long a rank waits for another before it gives the run up


def is_first() -> bool:
    """Whether this process is the one that speaks and writes."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def process_group() -> Iterator[Ranks]:
    """The processes that torchrun launched, or this one alone. A group that exists already is used, and left."""
    if dist.is_available() and dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size())
    elif int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
    else:
        yield from started_group()


def started_group() -> Iterator[Ranks]:
    """Start the group that the environment describes, and end it afterwards."""
    cuda = torch.cuda.is_available()
    if cuda:  # "cuda" then means another device to every rank of a machine
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        # A prefix of its own, as torchrun keeps the store, with the addresses of groups that have ended.
        own = dist.PrefixStore(f"bcsc {next(NUMBERS)}", store)  # type: ignore[attr-defined]
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise RankLostError(f"The processes did not find each other: {str(error).splitlines()[0]}") from error
    complete = True
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size())
    except RankLostError:
        complete = False  # taking the group down would wait for the lost rank, or abort
        raise
    finally:
        if complete:
            dist.destroy_process_group()
