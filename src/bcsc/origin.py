"""Where a result comes from: versions, commit, machine, times."""

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bcsc.version import __version__


def describe_origin(device: str, num_ranks: int = 1) -> dict[str, Any]:
    """What a reader needs to judge or repeat a result."""
    return {
        "bcsc": __version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": torch.backends.cpu.get_cpu_capability(),  # the instruction set: another one rounds otherwise
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "ranks": num_ranks,
        "started": now(),
        "ended": None,
        "resumed": 0,
    }


def now() -> str:
    """The time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def device_name(device: str) -> str:
    """The device as torch calls it, with the name of an accelerator."""
    kind = torch.device(device).type
    return f"{device} ({torch.cuda.get_device_name(device)})" if kind == "cuda" else device


def source_commit() -> str | None:
    """The commit of the source tree that is running, marked if changed since; nothing for an installed package."""
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
