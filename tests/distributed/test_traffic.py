"""Bytes that a rank sends, counted, against those of DistributedDataParallel for the same mini-batches."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bcsc.distributed.block_gradients import active_block_hook
from bcsc.distributed.rank_sampler import RankSampler
from bcsc.optim.methods import build_method
from bcsc.training.watcher import Watcher
from tests.distributed.group import in_process_group
from tests.distributed.problem import BATCH_SIZE, NUM_SAMPLES, base_optimizer, network, samples, trainer, weights

NUM_BLOCKS = 4
MASKS = ("update", "gradient", "all")


def wide_network():
    """Large enough that a handful of losses and flags is less than one percent of its gradient."""
    return nn.Sequential(nn.Linear(3, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 4)).double()


def bytes_of_an_epoch(ranks, mask, parallel):
    """What an epoch's steps send, and what looking at the losses and asking whether to stop adds to it."""
    run = trainer(ranks, NUM_BLOCKS, mask, parallel=parallel, model=wide_network())
    run._begin_epoch(Watcher())
    by_steps = by_looks = 0
    for batch in run.data.training_batches(0, 0):
        before = ranks.bytes_sent
        run._learn_from(batch)
        by_steps, before = by_steps + ranks.bytes_sent - before, ranks.bytes_sent
        run._look_around(lambda: None, lambda: False)
        by_looks += ranks.bytes_sent - before
    before = ranks.bytes_sent
    run._refuse_divergence()
    return by_steps, by_looks + ranks.bytes_sent - before, run.data.batches_per_epoch


def ring_bytes(num_bytes, size):
    return 2 * (size - 1) * num_bytes // size


def own_loop(ranks, mask, hook, *excluded):
    """A loop with DDP and nothing of ours but the optimizer and the sampler; the bytes that its all-reduces send."""
    model = network()
    optimizer, whole = build_method(
        "bcsc",
        base_optimizer(model, "sgd"),
        num_samples=NUM_SAMPLES,
        batch_size=BATCH_SIZE,
        num_blocks=NUM_BLOCKS,
        mask=mask,
        exclude=[list(model.parameters())[number] for number in excluded],
    )
    wrapped = DistributedDataParallel(model)
    sent = []

    def counting_all_reduce(tensor, *arguments, **options):
        sent.append(ring_bytes(tensor.nbytes, ranks.size))
        return all_reduce(tensor, *arguments, **options)

    def plain_hook(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        message = bucket.buffer().div_(ranks.size)
        return dist.all_reduce(message, async_op=True).get_future().then(lambda future: future.value()[0])

    if hook is not None:
        wrapped.register_comm_hook(optimizer, active_block_hook if hook == "ours" else plain_hook)
    sampler, data = RankSampler(whole, ranks.rank, ranks.size), samples()
    all_reduce, dist.all_reduce = dist.all_reduce, counting_all_reduce
    try:
        for epoch in range(2):
            optimizer.set_epoch(epoch)
            sampler.set_epoch(epoch)
            for batch in sampler:
                inputs, labels = data[batch]
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(wrapped(inputs), labels)
                (loss * sampler.loss_weight(optimizer.inner_step)).backward()
                optimizer.step()
    finally:
        dist.all_reduce = all_reduce
    return torch.cat([p.detach().flatten() for p in model.parameters()]), sum(sent)


def measure(ranks):
    return {
        "trainer": {
            (mask, mode): bytes_of_an_epoch(ranks, mask, mode) for mask in MASKS for mode in ("exact", "blocks")
        },
        "loop": {(mask, hook): own_loop(ranks, mask, hook) for mask in MASKS for hook in (None, "plain", "ours")},
        "excluding": {mask: own_loop(ranks, mask, "ours", 2)[0] for mask in MASKS},
    }


@pytest.fixture(scope="module", params=[2, 4])
def group(request, tmp_path_factory):
    return request.param, in_process_group(request.param, measure, folder=tmp_path_factory.mktemp("group"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "mask", "most"),
    [
        ("exact", "update", 1.0),
        ("exact", "gradient", 1 / NUM_BLOCKS + 0.01),
        ("exact", "all", 1 / NUM_BLOCKS + 0.01),
        ("blocks", "update", 1.05),
        ("blocks", "gradient", 0.55),
        ("blocks", "all", 0.55),
    ],
)
def test_a_rank_sends_no_more_than_promised(group, mode, mask, most):
    size, results = group
    num_bytes = sum(p.nbytes for p in wide_network().parameters())
    if mode == "exact":  # which copes with unused parameters, as DDP does if it may send a number for each of them
        num_bytes += sum(p.element_size() for p in wide_network().parameters())
    for result in results:
        by_steps, by_looks, num_batches = result["trainer"][mask, mode]
        rounds = num_batches // (size if mode == "blocks" else 1)  # DDP too works on W mini-batches per round
        of_ddp = rounds * ring_bytes(num_bytes, size)
        assert 0 < by_steps / of_ddp <= most
        assert by_looks / of_ddp < 0.001


@pytest.mark.slow
def test_a_loop_of_ones_own_with_or_without_the_hook_is_the_single_process(group):
    from bcsc.distributed.collectives import Ranks
    from tests.distributed.problem import trained

    _, results = group
    for mask in MASKS:
        expected = weights(trained(Ranks(), NUM_BLOCKS, mask))
        for result in results:
            for hook in (None, "plain", "ours"):
                torch.testing.assert_close(result["loop"][mask, hook][0], expected, rtol=0, atol=1e-10)
        excluding = weights(trained(Ranks(), NUM_BLOCKS, mask, exclude=2))
        for result in results:
            torch.testing.assert_close(result["excluding"][mask], excluding, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_the_hook_sends_the_active_block_only(group):
    _, results = group
    for result in results:
        sent = {key: value for key, (_, value) in result["loop"].items()}
        assert sent["update", "ours"] == sent["update", "plain"]
        for mask in ("gradient", "all"):
            assert sent[mask, "ours"] == pytest.approx(sent[mask, "plain"] / NUM_BLOCKS, rel=0.01)
