"""Whether this CPU can train in bfloat16, found out where it does no harm: in a child process.

Some virtual machines announce AMX and do not have it. There oneDNN fails in bfloat16, by an error or by a signal that
ends the process, and after an error float32 fails in that process too. Limiting oneDNN to the instructions before AMX
helps, if it is told before torch is loaded. So this module loads torch in the child only.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bcsc.errors import BcscError
from bcsc.files import user_cache, write_whole

VARIABLE, BEFORE_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"
PROBE = (sys.executable, "-m", "bcsc.training.precision")
PROBE_SECONDS = 120  # then it hangs
# Their layers cover what fails: plain, 1 x 1, grouped and depthwise convolutions, linear layers, BatchNorm.
PROBED_NETWORKS = ("lenet4", "resnet18", "mobilenet", "shufflenet")


class PrecisionError(BcscError, RuntimeError):
    """This process cannot train in the precision that was asked for."""


def make_bfloat16_work() -> None:
    """Let this process train in bfloat16 on the CPU; if that is impossible, say what to set.

    Whoever has limited oneDNN's instructions already knows better, and is not asked again.
    """
    if VARIABLE in os.environ:
        return
    limit = remembered_limit()
    if limit is None:
        limit = find_limit()
        remember(limit)
    if not limit:
        return
    if "torch" in sys.modules:
        raise PrecisionError(
            f"bfloat16 fails on this CPU unless {VARIABLE}={limit} is set before torch is loaded. "
            "Set it in the environment and start again, or take precision fp32."
        )
    os.environ[VARIABLE] = limit


def find_limit() -> str:
    """What to limit oneDNN's instructions to so that bfloat16 works; empty if it works as it is."""
    failure = failure_of_probe({})
    if failure is None:
        return ""
    if failure_of_probe({VARIABLE: BEFORE_AMX}) is None:
        return BEFORE_AMX
    raise PrecisionError(f"bfloat16 does not work on this CPU ({failure}). Take precision fp32.")


def failure_of_probe(settings: dict[str, str]) -> str | None:
    """Train a little in a child process with these variables set; what went wrong, if anything did."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **settings}
    try:
        child = subprocess.run(PROBE, env=environment, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"no answer in {PROBE_SECONDS} seconds"
    if child.returncode < 0:
        return f"ended by {signal.Signals(-child.returncode).name}"
    if child.returncode > 0:
        return (child.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    return None


def remembered_limit() -> str | None:
    """What ``find_limit`` found here before, if it did and the file can be read."""
    try:
        limit = json.loads(memory_file().read_bytes())["limit"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return limit if limit in ("", BEFORE_AMX) else None


def remember(limit: str) -> None:
    """Keep the answer for other processes; where that is impossible, each finds out for itself."""
    path = memory_file()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"limit": limit, **machine()}).encode())


def memory_file() -> Path:
    """Where the answer is kept for this machine and this torch."""
    key = hashlib.sha256(json.dumps(machine()).encode()).hexdigest()[:16]
    return user_cache() / f"bfloat16-{key}.json"


def machine() -> dict[str, str]:
    """All that decides whether bfloat16 works: the CPU as the system shows it, the system, torch."""
    listing = Path("/proc/cpuinfo")
    lines = re.findall(r"^(?:model name|flags|Features)\s*:.*$", listing.read_text(), re.M) if listing.exists() else []
    cpu = "\n".join(dict.fromkeys(lines)) or platform.processor()
    return {"cpu": cpu, "system": platform.platform(), "torch": importlib.metadata.version("torch")}


def try_bfloat16() -> None:
    """Make a training step of each network in bfloat16. It may end this process."""
    import torch
    import torch.nn.functional as F

    from bcsc import models

    for name in PROBED_NETWORKS:
        network = models.build(name, seed=0)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(network(torch.rand(4, 3, 32, 32)), torch.arange(4))
        torch.autograd.backward(loss)
        if not all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters()):
            raise PrecisionError(f"the gradients of {name} are not finite")


if __name__ == "__main__":
    try_bfloat16()
