"""A folder of one's own network and data is gone on with by the same network, loss and data alone."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import bcsc
from bcsc.errors import StateMismatchError
from bcsc.runs.batches import NUM_COMPARED, describe_own
from bcsc.seeding import stream

INPUTS = torch.randn(40, 3, generator=stream(0, "inputs"))
LABELS = (INPUTS.sum(dim=1) > 0).long()
DATA = TensorDataset(INPUTS, LABELS)


class Listed(Dataset[Any]):
    """Samples that are made when they are asked for, with labels of a kind."""

    def __init__(self, labels: Any, kind: Callable[[Any], Any] = int, augmented: bool = False) -> None:
        self.labels, self.kind, self.augmented = labels, kind, augmented

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        noise = random.random() + torch.rand(3) if self.augmented else 0.0
        return INPUTS[index] + noise, self.kind(self.labels[index])


def network(middle: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), middle(), nn.Linear(4, 2))


def described(model: nn.Module | None = None, train: Any = DATA, test: Any = DATA, loss: Any = F.cross_entropy) -> Any:
    return describe_own(model or network(), train, test, loss)


def test_another_start_of_the_same_is_the_same() -> None:
    assert described() == described()
    assert described(train=TensorDataset(INPUTS.clone(), LABELS.clone())) == described()


@pytest.mark.parametrize(
    "other",
    [
        {"model": network(nn.Tanh)},
        {"model": nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()},
        {"train": TensorDataset(INPUTS, 1 - LABELS)},
        {"train": TensorDataset(INPUTS + 1e-6, LABELS)},
        {"test": TensorDataset(INPUTS, 1 - LABELS)},
        {"loss": partial(F.cross_entropy, label_smoothing=0.1)},
        {"loss": nn.CrossEntropyLoss()},
    ],
    ids=["layer", "type", "labels", "inputs", "test set", "option of the loss", "loss"],
)
def test_another_network_data_set_or_loss_is_another(other: dict[str, Any]) -> None:
    assert described(**other) != described()


def test_what_a_loss_is_given_tells_it_apart() -> None:
    smoothed = [partial(F.cross_entropy, label_smoothing=amount) for amount in (0.1, 0.9)]
    weighted = [nn.CrossEntropyLoss(weight=torch.tensor(weights)) for weights in ([1.0, 1.0], [1.0, 2.0])]
    for one, other in (smoothed, weighted):
        assert described(loss=one) != described(loss=other)
        assert described(loss=one) == described(loss=one)


@pytest.mark.parametrize("kind", [int, float, np.int64, torch.tensor, str], ids=lambda kind: kind.__name__)
def test_of_a_data_set_that_is_not_in_memory_the_labels_are_compared_whatever_happens_to_the_inputs(kind: Any) -> None:
    plain, flipped = LABELS.tolist(), (1 - LABELS).tolist()
    assert described(train=Listed(plain, kind, augmented=True)) == described(train=Listed(plain, kind))
    assert described(train=Listed(flipped, kind)) != described(train=Listed(plain, kind))


def test_labels_drawn_at_random_and_unusual_ones_do_not_count() -> None:
    drawn = Listed(LABELS.tolist(), lambda label: label + random.random())
    assert described(train=drawn) == described(train=drawn)
    unusual = Listed(LABELS.tolist(), lambda _label: object())
    assert described(train=unusual) == described(train=unusual)


def test_few_samples_are_asked_for_and_the_global_generator_is_left_alone() -> None:
    asked = []

    class Counted(Listed):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            asked.append(index)
            return super().__getitem__(index)

    model, before = network(), torch.get_rng_state()
    described(model, train=Counted([0] * 40, augmented=True))
    assert torch.equal(torch.get_rng_state(), before)
    assert len(asked) == 2 * NUM_COMPARED
    assert {0, 39} <= set(asked)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_folder_of_other_data_is_refused_not_reported(tmp_path: Path, epochs: int) -> None:
    settings = {"out": tmp_path, "method": "bcsc", "blocks": 2, "batch_size": 16}
    bcsc.train(network(), DATA, DATA, epochs=1, **settings)
    with pytest.raises(StateMismatchError, match="holds another run: data was"):
        bcsc.train(network(), TensorDataset(INPUTS, 1 - LABELS), DATA, epochs=epochs, **settings)


def test_a_network_may_keep_what_is_no_tensor_and_a_data_set_may_be_large() -> None:
    class Extra(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"version": 1}

    class Large(Listed):
        def __len__(self) -> int:
            return 20_000_000

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            assert 0 <= index < len(self)
            return INPUTS[0], index

    assert described(Extra(3, 2)) == described(Extra(3, 2))
    assert described(train=Large([])) == described(train=Large([]))
