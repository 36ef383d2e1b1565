"""For trainers and loops that are not bcsc's own."""

from bcsc.integrations.distributed_state import DistributedState
from bcsc.integrations.loader import BlockCyclicLoader

__all__ = ["BlockCyclicLoader", "DistributedState"]
