"""The method: blocks of the parameters, a shuffle for each, and one of them moved per step, around any optimizer."""

from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.optim.methods import METHODS, Method, build_method
from bcsc.optim.partition import draw_blocks
from bcsc.optim.sampler import BlockCyclicSampler

__all__ = ["METHODS", "BlockCyclic", "BlockCyclicSampler", "Method", "build_method", "draw_blocks"]
