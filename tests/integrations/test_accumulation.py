"""Gradients accumulated over the batches of an inner step are the gradient of its mini-batch."""

import pytest
import torch

import bcsc
from tests.integrations.problem import DATASET, build_base, build_network, build_sampler, plain_loop, weights_of


@pytest.mark.parametrize("num_samples", [24, 21])  # the last mini-batch of a pass: whole, short
def test_accumulated_steps_are_the_steps_of_the_whole_mini_batches(num_samples: int) -> None:
    network = build_network()
    batches = build_sampler(num_samples, batch_size=2, batches_per_step=4)
    optimizer = bcsc.BlockCyclic(build_base(network), 3, steps_per_epoch=batches.steps_per_epoch)
    inputs, labels = DATASET.tensors
    seen = 0
    for _ in range(2):
        for number, batch in enumerate(batches, start=1):
            seen += len(batch)
            torch.nn.functional.cross_entropy(network(inputs[batch]), labels[batch], reduction="sum").backward()
            if number % 4 == 0:
                for p in network.parameters():
                    p.grad /= seen
                optimizer.step()
                optimizer.zero_grad()
                seen = 0
        batches.set_epoch(batches.epoch + 1)
    assert (optimizer.epoch, optimizer.inner_step) == (2, 0)
    expected = plain_loop(num_samples, num_epochs=2)
    torch.testing.assert_close(weights_of(network), weights_of(expected), rtol=0, atol=1e-14)
