"""Block-cyclic stochastic coordinate descent (BCSC) for PyTorch."""

import importlib
from typing import TYPE_CHECKING, Any

from bcsc.version import __version__

if TYPE_CHECKING:
    from bcsc import data, distributed, errors, models, optim
    from bcsc.cli.compare import Comparison, compare
    from bcsc.distributed import RankSampler, active_block_hook
    from bcsc.errors import BcscError
    from bcsc.integrations import BlockCyclicLoader, DistributedState
    from bcsc.optim import METHODS, BlockCyclic, BlockCyclicSampler, Method, build_method
    from bcsc.runs.run import Result, RunOptions, run, train
    from bcsc.runs.spec import RunSpec
    from bcsc.training.history import EpochRow
    from bcsc.training.watcher import Watcher

# Where each public name is. They are loaded when first asked for: importing bcsc, and `bcsc --help`, stay cheap.
_HOME = {
    "METHODS": "bcsc.optim",
    "BcscError": "bcsc.errors",
    "BlockCyclic": "bcsc.optim",
    "BlockCyclicLoader": "bcsc.integrations",
    "BlockCyclicSampler": "bcsc.optim",
    "Comparison": "bcsc.cli.compare",
    "DistributedState": "bcsc.integrations",
    "EpochRow": "bcsc.training.history",
    "Method": "bcsc.optim",
    "RankSampler": "bcsc.distributed",
    "Result": "bcsc.runs.run",
    "RunOptions": "bcsc.runs.run",
    "RunSpec": "bcsc.runs.spec",
    "Watcher": "bcsc.training.watcher",
    "active_block_hook": "bcsc.distributed",
    "build_method": "bcsc.optim",
    "compare": "bcsc.cli.compare",
    "data": "bcsc.data",
    "distributed": "bcsc.distributed",
    "errors": "bcsc.errors",
    "models": "bcsc.models",
    "optim": "bcsc.optim",
    "run": "bcsc.runs.run",
    "train": "bcsc.runs.run",
}

__all__ = [
    "METHODS",
    "BcscError",
    "BlockCyclic",
    "BlockCyclicLoader",
    "BlockCyclicSampler",
    "Comparison",
    "DistributedState",
    "EpochRow",
    "Method",
    "RankSampler",
    "Result",
    "RunOptions",
    "RunSpec",
    "Watcher",
    "__version__",
    "active_block_hook",
    "build_method",
    "compare",
    "data",
    "distributed",
    "errors",
    "models",
    "optim",
    "run",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bcsc' has no attribute {name!r}")
    module = importlib.import_module(_HOME[name])
    return module if _HOME[name] == f"bcsc.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
