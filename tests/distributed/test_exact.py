"""Several processes that split each mini-batch compute what one process computes."""

import itertools

import pytest
import torch

from bcsc.distributed.collectives import Ranks
from bcsc.seeding import stream_key
from bcsc.training.watcher import Watcher
from tests.distributed.group import in_process_group
from tests.distributed.problem import measurements, network, trained, trainer, weights

CASES = [
    *[{"num_blocks": m, "mask": mask} for m, mask in itertools.product((1, 2, 8), ("update", "gradient", "all"))],
    {"num_blocks": 2, "mask": "update", "batch_size": 10},  # a last mini-batch of one sample: ranks with none
    {"num_blocks": 2, "mask": "all", "base": "Adam"},
    {"num_blocks": 3, "mask": "update", "method": "sbc"},
    {"num_blocks": 2, "mask": "gradient", "method": "bcd"},
    *[{"num_blocks": 2, "mask": mask, "exclude": 2} for mask in ("update", "gradient", "all")],
    {"num_blocks": 2, "mask": "update", "method": "one-pass"},
    {"num_blocks": 2, "mask": "update", "method": "skip-update", "base": "Adam", "granularity": "row"},
    {"num_blocks": 2, "mask": "update", "method": "magma", "base": "RMSprop", "granularity": "tensor"},
]


def train_all_cases(ranks):
    runs = [trained(ranks, **case) for case in CASES]
    return [(weights(run), measurements(run)) for run in runs]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 4])
def test_any_number_of_processes_ends_with_the_same_weights_and_measurements(size, tmp_path):
    expected = train_all_cases(Ranks())
    for result in in_process_group(size, train_all_cases, folder=tmp_path):
        for case, (theirs, rows), (ours, our_rows) in zip(CASES, result, expected, strict=True):
            torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-10, msg=lambda text, case=case: f"{case}: {text}")
            torch.testing.assert_close(torch.tensor(rows), torch.tensor(our_rows))


def train_with_unlike_batch_norm(ranks):
    model = torch.nn.Sequential(network(), torch.nn.BatchNorm1d(4).double())
    run = trained(ranks, 2, "update", model=model)
    return weights(run), model[1].running_mean, measurements(run)


def stop_on_one_rank(ranks, num_blocks):
    """Rank 1 alone is asked to stop; where does each rank stop?"""
    run = trainer(ranks, num_blocks, "update")
    try:
        run.run(lambda: None, lambda: ranks.rank == 1, Watcher())
    except Exception as error:
        return type(error).__name__, run.optimizer.inner_step, run.state_dict()
    return "ran to the end"


def diverge_on_one_rank(ranks):
    """The samples of rank 1 alone give a loss that is not finite."""
    run = trainer(ranks, 8, "update")
    plain = run.plan.loss_fn
    object.__setattr__(run.plan, "loss_fn", lambda x, y: plain(x, y) * (float("nan") if ranks.rank == 1 else 1))
    try:
        run.run(lambda: None, lambda: False, Watcher())
    except Exception as error:
        return type(error).__name__, str(error)
    return "ran to the end"


def several_laws(ranks):
    stopped = [stop_on_one_rank(ranks, num_blocks) for num_blocks in (8, 1)]
    return train_with_unlike_batch_norm(ranks), stopped, diverge_on_one_rank(ranks)


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    return in_process_group(2, several_laws, folder=tmp_path_factory.mktemp("group"))


@pytest.mark.slow
def test_batch_norm_ends_alike_on_all_ranks(two_ranks):
    (first, _, _), (second, _, _) = two_ranks
    for ours, theirs in zip(first, second, strict=True):
        torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(theirs), rtol=0, atol=0)


@pytest.mark.slow
def test_a_signal_to_one_rank_stops_all_after_the_same_step(two_ranks):
    for _, (in_mid_epoch, at_the_end_of_a_short_epoch), _ in two_ranks:
        assert in_mid_epoch[:2] == ("Interrupted", 8)
        assert at_the_end_of_a_short_epoch[:2] == ("Interrupted", 3)


@pytest.mark.slow
def test_one_process_goes_on_where_two_have_stopped(two_ranks):
    for num_blocks, (_, _, state) in zip((8, 1), two_ranks[0][1], strict=True):
        resumed = trainer(Ranks(), num_blocks, "update")
        resumed.load_state_dict(state)
        resumed.run(lambda: None, lambda: False, Watcher())
        unbroken = trained(Ranks(), num_blocks, "update")
        torch.testing.assert_close(weights(resumed), weights(unbroken), rtol=0, atol=1e-10)
        torch.testing.assert_close(torch.tensor(measurements(resumed)), torch.tensor(measurements(unbroken)))


@pytest.mark.slow
def test_divergence_on_one_rank_is_noticed_by_all_alike(two_ranks):
    first, second = (diverged for _, _, diverged in two_ranks)
    assert first == second
    assert first[0] == "Diverged"


def test_no_two_ranks_drop_the_same_units_and_one_rank_drops_what_it_always_did():
    keys = [trainer(Ranks(rank, 3), 2, "update")._dropout_key() for rank in range(3)]
    alone = trainer(Ranks(), 2, "update")._dropout_key()
    assert len({*keys, alone}) == 4
    assert alone == stream_key(0, "dropout", 0)
