"""More than one process: the same algorithm with each mini-batch split, or several inner steps at once."""

from bcsc.distributed.block_parallel import BlockParallel
from bcsc.distributed.collectives import Ranks
from bcsc.distributed.exact import sum_before_steps
from bcsc.distributed.hook import active_block_hook
from bcsc.distributed.process_group import process_group
from bcsc.distributed.rank_sampler import RankSampler

__all__ = ["BlockParallel", "RankSampler", "Ranks", "active_block_hook", "process_group", "sum_before_steps"]
