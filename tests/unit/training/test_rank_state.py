"""What a rank has for itself comes back to it; with another number of ranks all get the mean, and luck starts anew."""

import pytest
import torch
from torch import nn

from bcsc.distributed.collectives import Ranks
from bcsc.errors import StateMismatchError
from bcsc.seeding import stream
from bcsc.training.rank_state import (
    average_buffers,
    check_rank_states,
    is_random_state,
    random_state,
    rank_states,
    restore_rank_state,
    set_random_state,
)
from tests.ranks_in_threads import in_threads

CPU = torch.device("cpu")


def network(rank: int = 0) -> nn.Module:
    """With statistics that tell the rank, and a count that all share."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(2))
    model[1].running_mean.fill_(float(rank))
    model[2].running_var.fill_(10.0 * rank)
    model[1].num_batches_tracked.fill_(7 + rank)
    return model


def statistics(model: nn.Module) -> list[float]:
    return [model[1].running_mean[0].item(), model[2].running_var[1].item(), model[1].num_batches_tracked.item()]


def test_all_ranks_get_the_mean_of_the_statistics_and_keep_their_counts() -> None:
    def averaged(ranks: Ranks) -> list[float]:
        model = network(ranks.rank)
        average_buffers(model, ranks)
        return statistics(model)

    assert in_threads(3, averaged) == [[1.0, 10.0, 7], [1.0, 10.0, 8], [1.0, 10.0, 9]]


@pytest.mark.parametrize("size", [3, 7])
def test_what_all_ranks_have_stays_as_it_is_to_the_bit(size: int) -> None:
    """A sum of three like numbers divided by three may be another."""
    constants = torch.randn(1000, generator=stream(0, "constants"))
    assert not torch.equal(sum([constants] * size) / size, constants)

    def averaged(ranks: Ranks) -> torch.Tensor:
        model = network(ranks.rank)
        model.register_buffer("constants", constants.clone())
        average_buffers(model, ranks)
        states = rank_states(model, ranks, CPU)
        restore_rank_state(model, states[:2], Ranks(), CPU)
        return model.constants

    assert all(torch.equal(found, constants) for found in in_threads(size, averaged))


def test_one_rank_alone_has_its_own_mean() -> None:
    model = network(5)
    average_buffers(model, Ranks())
    assert statistics(model) == [5.0, 50.0, 12]
    average_buffers(nn.Linear(1, 1), Ranks())


def test_the_states_of_all_ranks_are_known_to_each_and_come_back_to_their_own() -> None:
    def there_and_back(ranks: Ranks) -> tuple[int, list[float]]:
        states = rank_states(network(ranks.rank), ranks, CPU)
        check_rank_states(states, network(), CPU)
        model = network(99)
        restore_rank_state(model, states, ranks, CPU)
        return len(states), statistics(model)[:2]

    assert in_threads(3, there_and_back) == [(3, [0.0, 0.0]), (3, [1.0, 10.0]), (3, [2.0, 20.0])]


def test_another_number_of_ranks_goes_on_with_the_mean_and_with_its_own_luck() -> None:
    states = in_threads(3, lambda ranks: rank_states(network(ranks.rank), ranks, CPU))[0]
    model = network(99)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    restore_rank_state(model, states, Ranks(), CPU)
    assert statistics(model) == [1.0, 10.0, 106]
    assert torch.equal(torch.rand(2), expected)


def test_a_rank_alone_keeps_its_generator_and_leaves_its_statistics_to_the_network() -> None:
    model = network(4)
    states = rank_states(model, Ranks(), CPU)
    drawn = torch.rand(3)
    assert [state.keys() for state in states] == [{"cpu"}]
    restore_rank_state(model, states, Ranks(), CPU)
    assert torch.equal(torch.rand(3), drawn)
    assert statistics(model) == [4.0, 40.0, 11]


def test_a_state_of_the_generator_is_told_from_other_things() -> None:
    saved = random_state(CPU)
    drawn = torch.rand(3)
    set_random_state(saved, CPU)
    assert torch.equal(torch.rand(3), drawn)
    assert is_random_state(saved["cpu"], "cpu")
    for other in (torch.zeros(3, dtype=torch.uint8), torch.zeros(5056), "state", None):
        assert not is_random_state(other, "cpu")


def of_three() -> list[dict[str, torch.Tensor]]:
    return in_threads(3, lambda ranks: rank_states(network(ranks.rank), ranks, CPU))[0]


@pytest.mark.parametrize("saved", [None, [], {}, [None], [{}], "states", [{"cpu": torch.zeros(3)}], [{"other": 1}]])
def test_what_is_no_list_of_states_is_refused(saved: object) -> None:
    with pytest.raises(StateMismatchError, match="The saved state"):
        check_rank_states(saved, network(), CPU)


@pytest.mark.parametrize("wrong", [torch.zeros(9), torch.zeros(10, dtype=torch.float64), [0.0] * 10, None])
def test_statistics_of_another_network_are_refused(wrong: object) -> None:
    states = of_three()
    assert states[1]["buffers"].shape == (10,)
    states[1]["buffers"] = wrong
    with pytest.raises(StateMismatchError, match="'buffers' of a rank is not one of this run"):
        check_rank_states(states, network(), CPU)


def test_statistics_are_there_exactly_where_several_ranks_have_some() -> None:
    check_rank_states(of_three(), network(), CPU)
    for states, model in ((of_three()[:1], network()), (of_three(), nn.Linear(2, 3))):
        with pytest.raises(StateMismatchError, match="not tables of"):
            check_rank_states(states, model, CPU)
    alone = rank_states(network(), Ranks(), CPU)
    check_rank_states(alone, network(), CPU)
    check_rank_states(alone * 2, nn.Linear(2, 3), CPU)
    with pytest.raises(StateMismatchError, match="not tables of"):
        check_rank_states(alone * 2, network(), CPU)


def test_a_network_without_statistics_has_nothing_to_average() -> None:
    assert in_threads(2, lambda ranks: average_buffers(nn.Linear(1, 1), ranks)) == [None, None]
