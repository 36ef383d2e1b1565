"""A loop that lets blocks and batches drift apart is warned of, once; one that does not is not."""

import copy
import warnings
from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from bcsc import BlockCyclic, BlockCyclicLoader, BlockCyclicSampler
from bcsc.errors import DriftWarning

DATASET = TensorDataset(torch.ones(10))
NUM_STEPS = 9  # 3 blocks of 3 batches


def build_optimizer(steps_per_epoch: int | None = None, num_blocks: int = 3) -> BlockCyclic:
    parameter = torch.nn.Parameter(torch.zeros(6))
    parameter.grad = torch.ones(6)
    return BlockCyclic(torch.optim.SGD([parameter], lr=0.1), num_blocks, steps_per_epoch=steps_per_epoch)


def build_sampler(batches_per_step: int = 1) -> BlockCyclicSampler:
    return BlockCyclicSampler(10, 4 // batches_per_step, 3, batches_per_step=batches_per_step)


def train(
    optimizer: BlockCyclic,
    batches: BlockCyclicSampler | DataLoader | BlockCyclicLoader,
    *told: BlockCyclic | BlockCyclicSampler | BlockCyclicLoader,
    epochs: range = range(3),
    accumulate: int = 1,
    limit: int | None = None,
) -> list[str]:
    """What is warned of in a loop that tells only some of the objects its epochs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for epoch in epochs:
            for each in told:
                each.set_epoch(epoch)
            for number, _ in enumerate(islice(batches, limit), start=1):
                if number % accumulate == 0:
                    optimizer.step()
    assert all(issubclass(warning.category, DriftWarning) for warning in caught)
    return [str(warning.message) for warning in caught]


RIGHT_LOOPS = {  # whether all are told the epoch, the optimizer's steps_per_epoch, and what else is done
    "README": (True, None, {}),
    "turned over by themselves": (False, NUM_STEPS, {}),
    "told although turned over": (True, NUM_STEPS, {}),
    "epochs cut short": (True, None, {"limit": 4}),
    "accumulated": (True, None, {"accumulate": 2}),
    "accumulated and turned over": (False, NUM_STEPS, {"accumulate": 2}),
}


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("told", "steps_per_epoch", "options"), RIGHT_LOOPS.values(), ids=RIGHT_LOOPS)
def test_a_right_loop_is_not_warned_of(told: bool, steps_per_epoch, options, num_workers: int) -> None:
    optimizer, batches = build_optimizer(steps_per_epoch), build_sampler(options.get("accumulate", 1))
    loader = BlockCyclicLoader(DATASET, batches, num_workers=num_workers)
    assert train(optimizer, loader, *([optimizer, loader] if told else []), **options) == []
    if told and "limit" not in options:
        plain = DataLoader(DATASET, batch_sampler=batches, num_workers=num_workers)
        assert train(optimizer, plain, batches, optimizer, epochs=range(3, 5), **options) == []


@pytest.mark.parametrize("step", [1, 4, NUM_STEPS - 1, NUM_STEPS])
def test_a_right_resumption_is_not_warned_of(step: int) -> None:
    optimizer, loader = build_optimizer(), BlockCyclicLoader(DATASET, build_sampler())
    assert train(optimizer, loader, optimizer, loader, epochs=range(1), limit=step) == []
    resumed, again = build_optimizer(), BlockCyclicLoader(DATASET, build_sampler())
    resumed.load_state_dict(optimizer.state_dict())
    again.load_state_dict(loader.state_dict())
    assert train(resumed, again, resumed, again) == []


def test_a_resumption_that_skips_the_first_batches_is_not_warned_of() -> None:
    optimizer, batches = build_optimizer(), build_sampler()
    assert train(optimizer, batches, optimizer, batches, epochs=range(1), limit=4) == []
    resumed, again = build_optimizer(), build_sampler()
    resumed.load_state_dict(optimizer.state_dict())
    assert train(resumed, islice(again, 4, None), resumed, again, epochs=range(1)) == []


def test_an_optimizer_ahead_of_the_sampler_is_warned_of() -> None:
    optimizer, batches = build_optimizer(), build_sampler()
    (message,) = train(optimizer, batches, optimizer)
    assert message.startswith("The optimizer is at step 0 of epoch 1, the sampler still gives batches of epoch 0.")
    assert "BlockCyclicLoader" in message
    (message,) = train(build_optimizer(steps_per_epoch=NUM_STEPS), build_sampler())
    assert message.startswith("The optimizer is at step 0 of epoch 1, the sampler still gives batches of epoch 0.")


def test_a_step_that_no_batch_was_for_is_warned_of() -> None:
    """As ``get_optimizer_state_dict`` of torch makes one to learn what state there is."""
    optimizer, batches = build_optimizer(), build_sampler()
    optimizer.step()
    (message,) = train(optimizer, batches, epochs=range(1))
    assert message == (
        "The optimizer is at step 1 of epoch 0, the sampler has given 1 batches: there were more steps than batches "
        "for them. Make one step for each batch; for other steps take another optimizer. (docs/integrations.md)"
    )


def test_an_optimizer_that_stays_in_its_epoch_is_warned_of() -> None:
    (message,) = train(build_optimizer(), build_sampler())
    assert message.startswith("The optimizer is at step 9 of epoch 0, which has 9: the same blocks again.")
    assert "steps_per_epoch=9" in message
    optimizer, batches = build_optimizer(), build_sampler()
    (message,) = train(optimizer, batches, batches)
    assert message.startswith("The optimizer is at step 9 of epoch 0, the sampler gives batches of epoch 1. Call set_")


def test_accumulation_that_the_sampler_knows_nothing_of_is_warned_of() -> None:
    optimizer, batches = build_optimizer(steps_per_epoch=NUM_STEPS), build_sampler()
    (message,) = train(optimizer, batches, batches, accumulate=3)
    assert message.startswith(
        "The optimizer is at step 3 of epoch 0, the sampler gives batches of epoch 1. If the grad"
    )
    for order in (0, 1):
        optimizer, batches = build_optimizer(), build_sampler()
        told = [optimizer, batches][:: -1 if order else 1]
        (message,) = train(optimizer, batches, *told, accumulate=2)
        assert message.startswith("In epoch 0 the optimizer has made 4 steps, the sampler has given the batches of 9.")
        assert "batches_per_step=" in message
        assert "RankSampler" in message
        assert "If a GradScaler has skipped steps, call set_epoch" in message


def test_who_says_the_epoch_goes_on_with_the_sampler_after_a_skipped_step() -> None:
    optimizer, batches = build_optimizer(steps_per_epoch=NUM_STEPS), build_sampler()
    for epoch in range(2):
        optimizer.set_epoch(epoch)
        batches.set_epoch(epoch)
        for number, _ in enumerate(batches):
            if (epoch, number) != (0, 1):  # as where a gradient is infinite
                assert optimizer.inner_step == number - (epoch == 0 and number > 1)
                optimizer.step()


def test_half_as_many_steps_as_batches_are_warned_of_and_more_are_not() -> None:
    """A ``GradScaler`` skips some."""
    for num_steps in (3, 4):
        optimizer, batches = build_optimizer(num_blocks=2), BlockCyclicSampler(10, 4, 2)
        optimizer.set_epoch(0)
        for number, _ in enumerate(batches):
            if number < num_steps:
                optimizer.step()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.set_epoch(1)
        assert [str(warning.message)[:48] for warning in caught] == (
            ["In epoch 0 the optimizer has made 3 steps, the s"] if num_steps == 3 else []
        )


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("loaded", ["optimizer", "sampler"])
def test_a_resumption_of_one_of_the_two_is_warned_of(loaded: str, steps: int) -> None:
    optimizer, batches = build_optimizer(), build_sampler()
    assert train(optimizer, batches, optimizer, batches, epochs=range(1), limit=steps) == []
    resumed, again = build_optimizer(), build_sampler()
    if loaded == "optimizer":
        resumed.load_state_dict(optimizer.state_dict())
    else:
        again.load_state_dict(batches.state_dict())
    (message,) = train(resumed, again, resumed, again)
    step, start = (steps, 0) if loaded == "optimizer" else (0, steps)
    assert message == (
        f"The optimizer is at step {step} of epoch 0, the sampler has begun it at batch {start}. Load the state of "
        "both, or of neither; with a BlockCyclicLoader it is the loader's. If both were loaded, a GradScaler had "
        "skipped steps before: call set_epoch on the optimizer before each epoch, and it goes on with the sampler. "
        "(docs/integrations.md)"
    )


@pytest.mark.parametrize("num_blocks", [1, 2, 6])
def test_a_sampler_that_shuffles_for_other_blocks_is_warned_of(num_blocks: int) -> None:
    optimizer, batches = build_optimizer(num_blocks=num_blocks), build_sampler()
    (message,) = train(optimizer, batches, optimizer, batches)
    assert message.startswith(
        f"The optimizer has {num_blocks} blocks, the sampler shuffles for 3, so that a block does"
    )


def test_blocks_that_have_no_shuffle_of_their_own_may_be_of_any_number() -> None:
    for samples in ("one-shuffle", "random"):
        optimizer, batches = build_optimizer(num_blocks=2), BlockCyclicSampler(10, 4, 3, samples=samples)
        assert train(optimizer, batches, optimizer, batches) == []
    parameter = torch.nn.Parameter(torch.zeros(6))
    parameter.grad = torch.ones(6)
    at_random = BlockCyclic(torch.optim.SGD([parameter], lr=0.1), 2, order="random")
    assert train(at_random, batches := build_sampler(), at_random, batches) == []


def test_a_sampler_of_earlier_says_nothing() -> None:
    optimizer, batches = build_optimizer(), build_sampler()
    assert len(list(batches)) == NUM_STEPS
    optimizer.step()
    batches.set_epoch(5)
    assert train(optimizer, [None] * 20, optimizer) == []


def test_a_copy_goes_on_from_the_middle_of_an_epoch_and_is_not_warned_of() -> None:
    optimizer, batches = build_optimizer(), build_sampler()
    assert train(optimizer, batches, optimizer, batches, epochs=range(1), limit=4) == []
    twin, again = copy.deepcopy(optimizer), build_sampler()
    assert train(twin, again, twin, again, epochs=range(1, 3)) == []
