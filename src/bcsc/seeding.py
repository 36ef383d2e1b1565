"""Named random streams: a generator is fixed by its name alone, so any epoch can be replayed by itself.

A new consumer takes a new purpose and disturbs no other; processes agree without talking; resuming is free. torch's
generator on the CPU looks at the lower 32 bits of a key, so that two of some 65,000 streams may well be the same.
"""

import hashlib

import torch


def stream_key(seed: int, purpose: str, *position: int) -> int:
    """A 63-bit number fixed by the seed, what the randomness is for, and where in the run it is used."""
    name = "/".join([str(seed), purpose, *map(str, position)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def stream(seed: int, purpose: str, *position: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for ``purpose`` at ``position`` (usually the epoch)."""
    return torch.Generator(device).manual_seed(stream_key(seed, purpose, *position))
