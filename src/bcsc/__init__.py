"""Block-cyclic stochastic coordinate descent (BCSC) for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

from bcsc.version import __version__

if TYPE_CHECKING:
    from bcsc.errors import BcscError
    from bcsc.optim.block_cyclic import BlockCyclic
    from bcsc.optim.methods import METHODS, Method, build_method
    from bcsc.optim.sampler import BlockCyclicSampler
    from bcsc.runs.run import Result, RunOptions, run, train
    from bcsc.runs.spec import RunSpec

# Where each public name is. They are loaded when first asked for: importing bcsc, and `bcsc --help`, stay cheap.
_HOME = {
    "METHODS": "bcsc.optim.methods",
    "BcscError": "bcsc.errors",
    "BlockCyclic": "bcsc.optim.block_cyclic",
    "BlockCyclicSampler": "bcsc.optim.sampler",
    "Method": "bcsc.optim.methods",
    "Result": "bcsc.runs.run",
    "RunOptions": "bcsc.runs.run",
    "RunSpec": "bcsc.runs.spec",
    "build_method": "bcsc.optim.methods",
    "run": "bcsc.runs.run",
    "train": "bcsc.runs.run",
}

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
    """A public name, or a package of ours such as ``bcsc.models``."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in ("models", "data", "optim"):
        return importlib.import_module(f"bcsc.{name}")
    raise AttributeError(f"module 'bcsc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
