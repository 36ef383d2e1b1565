"""Block-cyclic stochastic coordinate descent (BCSC) for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

from bcsc.version import __version__

if TYPE_CHECKING:
    from bcsc.catalog.spec import RunSpec
    from bcsc.data.shuffles import BlockCyclicSampler
    from bcsc.errors import BcscError
    from bcsc.methods import METHODS, Method, build_method
    from bcsc.optim.block_cyclic import BlockCyclic
    from bcsc.running.run import Result, RunOptions, run, train

# Where each public name is. They are loaded when first asked for: importing bcsc, and `bcsc --help`, stay cheap.
_HOME = {
    "METHODS": "bcsc.methods",
    "BcscError": "bcsc.errors",
    "BlockCyclic": "bcsc.optim.block_cyclic",
    "BlockCyclicSampler": "bcsc.data.shuffles",
    "Method": "bcsc.methods",
    "Result": "bcsc.running.run",
    "RunOptions": "bcsc.running.run",
    "RunSpec": "bcsc.catalog.spec",
    "build_method": "bcsc.methods",
    "run": "bcsc.running.run",
    "train": "bcsc.running.run",
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
