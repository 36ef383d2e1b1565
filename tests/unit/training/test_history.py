"""What an epoch measured, and the columns of the paper's tables."""

from pathlib import Path
from statistics import fmean, pstdev

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bcsc
from bcsc.errors import InvalidArgumentError
from bcsc.training.history import EpochRow, accuracy_summary, duration, per_second, row_of


def rows(accuracies: list[float]) -> list[EpochRow]:
    return [EpochRow(i + 1, 0.1, 1.0, 0.1, 1.0, accuracy, 1, 1.0, 1.0) for i, accuracy in enumerate(accuracies)]


def test_the_summary_has_the_columns_of_the_papers_tables() -> None:
    assert accuracy_summary(rows([10.0, 20.0, 60.0, 50.0]), epochs=4) == {
        "first_half": 15.0,
        "last_half": 55.0,
        "all": 35.0,
        "final": 50.0,
        "best": 60.0,
    }
    assert accuracy_summary([], epochs=4) is None
    assert accuracy_summary(rows([30.0]), epochs=1)["last_half"] == 30.0


def test_a_clock_that_stands_still_measures_no_rate() -> None:
    assert per_second(100, 4.0) == 25.0
    assert per_second(100, 0.5) == 200.0
    assert per_second(100, 0.0) == 0.0


def test_the_training_loss_has_its_mean_and_deviation_over_the_mini_batches(tmp_path: Path) -> None:
    inputs, labels = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 1, 1])
    data, model = TensorDataset(inputs, labels), nn.Linear(1, 2)
    losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none").tolist()
    row = bcsc.train(model, data, data, out=tmp_path, method="sgd", epochs=1, batch_size=1, lr=0.0).history[0]
    assert (row.train_loss, row.train_loss_std) == pytest.approx((fmean(losses), pstdev(losses)))
    assert row.train_loss_std > 0.01


def test_halves_are_of_the_planned_epochs_and_the_middle_one_belongs_to_the_first() -> None:
    odd = accuracy_summary(rows([10.0, 20.0, 60.0]), epochs=3)
    assert (odd["first_half"], odd["last_half"]) == (15.0, 60.0)
    on_its_way = accuracy_summary(rows([10.0, 20.0]), epochs=4)
    assert (on_its_way["first_half"], on_its_way["last_half"]) == (15.0, 20.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (99 * 60, "99 min"),
        (100 * 60, "1 h 40 min"),
        (47 * 3600 + 59 * 60, "47 h 59 min"),
        (48 * 3600, "2 days 0 h"),
        (100 * 3600, "4 days 4 h"),
        (46 * 3600, "46 h 00 min"),
        (100 * 86400 - 3600, "99 days 23 h"),
        (100 * 86400, "100 days"),
        (610.4 * 86400, "610 days"),
        (729 * 86400, "729 days"),
        (730 * 86400, "2 years"),
        (365_250 * 86400, "1,000 years"),
    ],
)
def test_a_duration_is_in_units_of_its_size(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_row_is_read_as_it_was_written_and_a_whole_number_will_do_for_any() -> None:
    (row,) = rows([62.5])
    assert row_of({**row._asdict(), "added by a later version": "text"}) == row
    whole = row_of(dict.fromkeys(EpochRow._fields, 3))
    assert whole == EpochRow(*[3] * len(EpochRow._fields))
    assert [type(value) for value in whole] == [type(value) for value in row]
    for name, value in row._asdict().items():
        for wrong in (None, "3", True, 10**400, *([3.0] if type(value) is int else [])):
            with pytest.raises(InvalidArgumentError, match=f"{name} must be a "):
                row_of({**row._asdict(), name: wrong})
