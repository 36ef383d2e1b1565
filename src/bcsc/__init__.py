"""Block-cyclic stochastic coordinate descent (BCSC) for PyTorch."""

from bcsc.version import __version__

__all__ = ["__version__"]
