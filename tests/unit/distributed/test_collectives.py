"""What the ranks tell each other."""

import torch

from bcsc.distributed.collectives import Ranks


def test_alone_every_collective_is_the_identity_and_sends_nothing():
    ranks, tensor = Ranks(), torch.arange(3.0)
    assert ranks.sum_(tensor) is tensor
    assert [t.tolist() for t in ranks.gather(tensor)] == [[0.0, 1.0, 2.0]]
    assert ranks.from_first(lambda: 7) == 7
    assert ranks.any(True)
    assert not ranks.any(False)
    assert ranks.bytes_sent == 0
