"""A position counts inner steps and epochs, and one that was restored is gone on from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bcsc.errors import InvalidArgumentError
from bcsc.optim.position import Position


def where(position: Position) -> tuple[int, int]:
    return position.epoch, position.step


def restored(epoch: int, step: int) -> Position:
    position = Position()
    position.restore(epoch, step)
    return position


@given(st.integers(0, 40), st.integers(1, 7))
def test_steps_are_counted_through_epochs_of_one_length(num_steps: int, steps_per_epoch: int) -> None:
    turning, staying = Position(), Position()
    for _ in range(num_steps):
        turning.advance(steps_per_epoch)
        staying.advance()
    assert where(turning) == divmod(num_steps, steps_per_epoch)
    assert where(staying) == (0, num_steps)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_an_epoch_begins_at_its_first_step_unless_it_is_restored_and_not_left(epoch: int, step: int, told: int) -> None:
    position = restored(epoch, step)
    for _ in range(2):  # a trainer may say it more than once
        position.set_epoch(told)
        assert where(position) == (told, step if told == epoch else 0)
    position.set_epoch(epoch)
    if told != epoch:
        assert where(position) == (epoch, 0)
    position = restored(epoch, step)
    position.leave()
    position.set_epoch(epoch)
    assert where(position) == (epoch, 0)


def test_an_epoch_is_told_until_a_step_is_made_and_a_restored_one_is_not() -> None:
    position = Position()
    assert not position.is_told
    for go_on in (position.advance, position.leave, position.begin_again, lambda: position.restore(2, 3)):
        position.set_epoch(1)
        assert position.is_told
        go_on()
        assert not position.is_told


def test_no_step_was_made_at_the_beginning_nor_since_it_was_restored() -> None:
    position = Position()
    assert position.is_begun_here
    position.advance()
    assert not position.is_begun_here
    position.restore(1, 4)
    assert position.is_begun_here
    position.advance()
    assert not position.is_begun_here
    position.begin_again()
    assert position.is_begun_here
    assert where(position) == (1, 0)


@pytest.mark.parametrize(("epoch", "step"), [(-1, 0), (0, -1), (0.5, 0), (0, None)])
def test_what_is_no_position_is_refused_and_changes_nothing(epoch, step) -> None:
    position = restored(1, 2)
    with pytest.raises(InvalidArgumentError, match="must be a whole number"):
        position.restore(epoch, step)
    assert where(position) == (1, 2)
    with pytest.raises(InvalidArgumentError, match="epoch must be a whole number"):
        position.set_epoch(-1)
    assert where(position) == (1, 2)
