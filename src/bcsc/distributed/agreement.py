"""Ranks never disagree: blocks and shuffles come from the seed and the epoch. Here that is checked."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from bcsc.distributed.collectives import Ranks
from bcsc.errors import BcscError


class RanksDisagreeError(BcscError, RuntimeError):
    """The ranks are not training the same network in the same way."""


def fingerprint(words: Iterable[object], tensors: Iterable[Tensor]) -> int:
    """63 bits that change with any of the words and with any bit of the tensors."""
    digest = hashlib.sha256(repr(list(words)).encode())
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def odd_ones_out(fingerprints: Sequence[int]) -> list[int]:
    """The ranks that differ from most of them, or from the first where there is no majority."""
    counts = Counter(fingerprints)
    usual = max(fingerprints, key=lambda value: counts[value])
    return [rank for rank, value in enumerate(fingerprints) if value != usual]


def check_agreement(ranks: Ranks, where: str, words: Iterable[object], tensors: Iterable[Tensor]) -> None:
    """Stop on every rank if one of them differs in the words or in a bit of the tensors, and name it."""
    if ranks.alone:
        return
    mine = torch.tensor(fingerprint(words, tensors))
    odd = odd_ones_out([int(value) for value in ranks.gather(mine)])
    if odd:
        raise RanksDisagreeError(
            f"{where}, rank {' and rank '.join(map(str, odd))} of {ranks.size} differs from the others in its "
            "settings, its position or its parameters. Start all ranks by the same command, with the same versions; "
            "if they were, look for what makes its arithmetic different. The last checkpoint is from before."
        )
