"""Block-cyclic stochastic coordinate descent (BCSC) for PyTorch."""

from typing import TYPE_CHECKING, Any

from bcsc.catalog.spec import RunSpec
from bcsc.data.shuffles import BlockCyclicSampler
from bcsc.errors import BcscError
from bcsc.methods import METHODS, Method, build_method
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.version import __version__

if TYPE_CHECKING:
    from bcsc.running.run import Result, RunOptions, run, train

__all__ = [
    "METHODS",
    "BcscError",
    "BlockCyclic",
    "BlockCyclicSampler",
    "Method",
    "Result",
    "RunOptions",
    "RunSpec",
    "__version__",
    "build_method",
    "run",
    "train",
]


def __getattr__(name: str) -> Any:
    """Load what trains only when it is asked for: importing bcsc stays cheap."""
    if name in ("Result", "RunOptions", "run", "train"):
        from bcsc.running import run as module

        return getattr(module, name)
    raise AttributeError(f"module 'bcsc' has no attribute {name!r}")
