"""More than one process: the same algorithm with each mini-batch split, or several inner steps at once."""

from bcsc.distributed.block_gradients import active_block_hook, sum_before_steps
from bcsc.distributed.block_parallel import BlockParallel
from bcsc.distributed.collectives import Ranks
from bcsc.distributed.process_group import process_group
from bcsc.distributed.rank_sampler import RankSampler

__all__ = ["BlockParallel", "RankSampler", "Ranks", "active_block_hook", "process_group", "sum_before_steps"]
