"""The block-parallel mode is W gradients at one point, then W steps in cycle order; its state is shared out."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from bcsc.distributed.collectives import Ranks
from bcsc.optim.methods import build_method
from tests.distributed.group import in_process_group
from tests.distributed.problem import (
    BATCH_SIZE,
    NUM_SAMPLES,
    base_optimizer,
    measurements,
    network,
    samples,
    trained,
    trainer,
    weights,
)

CASES = list(itertools.product((4, 8), ("update", "gradient", "all"), ("sgd", "Adam", "Adagrad")))


def by_hand(size, num_blocks, mask, base):
    """Two epochs of rounds in one process: gradients first, all at the same point, then the steps one by one."""
    model, data = network(), samples()
    optimizer, sampler = build_method(
        "bcsc",
        base_optimizer(model, base),
        num_samples=NUM_SAMPLES,
        batch_size=BATCH_SIZE,
        num_blocks=num_blocks,
        mask=mask,
    )
    optimizer.param_groups[0]["lr"] = 0.1
    for epoch in range(2):
        optimizer.set_epoch(epoch)
        batches = list(sampler.index_batches(epoch))
        for start in range(0, len(batches), size):
            gradients = []
            for batch in batches[start : start + size]:
                inputs, labels = data[batch]
                loss = F.cross_entropy(model(inputs), labels)
                gradients.append(torch.autograd.grad(loss, list(model.parameters())))
            for of_step in gradients:
                for p, gradient in zip(model.parameters(), of_step, strict=True):
                    p.grad = gradient
                optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def state_size(state):
    return sum(x.numel() for entries in state.values() for x in entries.values() if torch.is_tensor(x) and x.dim())


def interrupted_and_resumed(ranks, num_blocks, mask, base):
    """Stop after some rounds, hand the state to a fresh trainer, and go on."""
    from bcsc.training.trainer import Interrupted
    from bcsc.training.watcher import Watcher

    before = trainer(ranks, num_blocks, mask, base=base, parallel="blocks")
    object.__setattr__(before.plan, "checkpoint_every", ranks.size)
    with pytest.raises(Interrupted, match="Stopped"):
        before.run(lambda: None, lambda: before.epoch == 1, Watcher())
    after = trainer(ranks, num_blocks, mask, base=base, parallel="blocks")
    after.load_state_dict(before.state_dict())
    after.run(lambda: None, lambda: False, Watcher())
    return after


def train_all_cases(ranks):
    results = []
    for num_blocks, mask, base in CASES:
        run = trained(ranks, num_blocks, mask, base=base, parallel="blocks")
        resumed = interrupted_and_resumed(ranks, num_blocks, mask, base)
        owned = state_size(run.optimizer._state)
        whole = state_size(run.optimizer.state_dict()["state"])
        results.append((weights(run), weights(resumed), measurements(run), owned, whole))
    return results


@pytest.fixture(scope="module", params=[2, 4])
def group(request, tmp_path_factory):
    size = request.param
    return size, in_process_group(size, train_all_cases, folder=tmp_path_factory.mktemp("group"))


@pytest.mark.slow
def test_a_round_is_gradients_at_one_point_then_steps_in_cycle_order(group):
    size, results = group
    for case, *of_ranks in zip(CASES, *results, strict=True):
        expected = by_hand(size, *case)
        for theirs, *_ in of_ranks:
            torch.testing.assert_close(theirs, expected, rtol=0, atol=1e-10, msg=lambda text, c=case: f"{c}: {text}")


@pytest.mark.slow
def test_a_resumed_run_equals_the_unbroken_one_to_the_bit(group):
    _, results = group
    assert all(torch.equal(unbroken, resumed) for of_rank in results for unbroken, resumed, *_ in of_rank)


@pytest.mark.slow
def test_ranks_agree_in_weights_and_measurements(group):
    _, results = group
    for of_rank in results:
        for (ours, _, rows, *_), (theirs, _, their_rows, *_) in zip(results[0], of_rank, strict=True):
            assert torch.equal(ours, theirs)
            assert rows == their_rows


@pytest.mark.slow
def test_the_ranks_share_the_state_out(group):
    size, results = group
    num_scalars = weights(trainer(Ranks(), 4, "update")).numel()
    for of_ranks in zip(*results, strict=True):
        owned, whole = [result[3] for result in of_ranks], of_ranks[0][4]
        assert sum(owned) == whole
        assert max(owned) <= whole / size * (1 + size / num_scalars * 4)


def test_one_rank_in_block_parallel_mode_is_the_plain_optimizer():
    assert torch.equal(
        weights(trained(Ranks(), 4, "update", parallel="blocks")), weights(trained(Ranks(), 4, "update"))
    )
