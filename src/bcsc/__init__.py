"""Block-cyclic stochastic coordinate descent (BCSC) for PyTorch."""

from bcsc.data.shuffles import BlockCyclicSampler
from bcsc.errors import BcscError
from bcsc.methods import METHODS, Method, build_method
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.version import __version__

__all__ = ["METHODS", "BcscError", "BlockCyclic", "BlockCyclicSampler", "Method", "__version__", "build_method"]
