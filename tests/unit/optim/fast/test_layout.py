"""Where tensors lie: what a loop may go over, and what it would read or write wrongly."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from bcsc.optim.fast import layout


class OneOfOurs(Tensor):
    """A subclass, which may be anything."""


OTHERS: dict[str, Callable[[], object]] = {
    "missing": lambda: None,
    "of another type": lambda: torch.ones(3, 2, dtype=torch.float64),
    "of another size": lambda: torch.ones(3, 3),
    "in another order": lambda: torch.ones(2, 3).t(),
    "with gaps": lambda: torch.ones(3, 4)[:, ::2],
    "elsewhere": lambda: torch.ones(3, 2, device="meta"),
    "sparse": lambda: torch.ones(3, 2).to_sparse(),
    "of a subclass": lambda: torch.ones(3, 2).as_subclass(OneOfOurs),
    "zeros from nowhere": lambda: torch._efficientzerotensor(3, 2),
    "negated when looked at": lambda: torch._neg_view(torch.ones(3, 2)),
}


def plain_layout() -> layout.Layout:
    return layout.Layout([torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.uint8)], torch.float32)


@pytest.mark.parametrize("with_likeness", [True, False])
@pytest.mark.parametrize("other", OTHERS)
def test_what_a_loop_cannot_go_over_has_no_address(other: str, with_likeness: bool, monkeypatch) -> None:
    if not with_likeness:
        monkeypatch.setattr(layout, "kind_of_likeness", lambda: None)
    places, last = plain_layout(), torch.ones(4)
    assert places.addresses([OTHERS[other](), last], [torch.ones(3, 2), last]) is None
    assert places.addresses([torch.ones(3, 2), last], [torch.ones(3, 2), last]) is not None
    for _ in range(2):
        assert places.addresses([torch.ones(3, 2), last], [OTHERS[other](), last]) is None
        assert places.addresses([OTHERS[other](), last], [torch.ones(3, 2), last]) is None


@pytest.mark.parametrize("kind", [None, "known"])
def test_addresses_are_those_of_the_tensors_of_this_step(kind: str | None, monkeypatch) -> None:
    if kind is None:
        monkeypatch.setattr(layout, "kind_of_likeness", lambda: None)
    places = plain_layout()
    for first in (torch.ones(3, 2), nn.Parameter(torch.ones(3, 2)), torch.ones(2, 3), torch.ones(6)):
        rows = [first, torch.ones(4)], [torch.zeros(3, 2), torch.zeros(4)]
        found = places.addresses(*rows)
        assert found[:2].tolist() == [[x.data_ptr() for x in row] for row in rows]


def test_tensors_that_are_as_before_are_looked_at_once(monkeypatch) -> None:
    assert layout.kind_of_likeness() is not None, "torch's check has moved: steps are right, and slower"
    places, looks = plain_layout(), []
    monkeypatch.setattr(layout, "is_plain", lambda tensor: looks.append(tensor) or True)
    for _ in range(3):
        assert places.addresses([torch.ones(3, 2), torch.ones(4)]) is not None
    assert len(looks) == 2


class Careless:
    """A check that overlooks all."""

    def __init__(self, *tensors: Tensor, **_lists: object) -> None:
        pass

    def check(self, *tensors: object) -> bool:
        return True


class Broken:
    """A check that is called otherwise."""


@pytest.mark.parametrize("kind", [Careless, Broken])
def test_a_check_that_overlooks_something_is_not_used(kind: type, monkeypatch) -> None:
    monkeypatch.setattr("torch._C._dynamo.guards.TensorGuards", kind)
    assert layout.kind_of_likeness.__wrapped__() is None


OVERLOOKED: dict[str, Callable[[Tensor], bool]] = {
    "another type": lambda x: x.dtype == torch.float64,
    "whole numbers": lambda x: x.dtype == torch.int32,
    "another shape": lambda x: x.shape == (2, 3),
    "another number of dimensions": lambda x: x.shape == (6,),
    "another order": lambda x: x.stride() == (1, 3),
    "gaps": lambda x: x.stride() == (4, 2) and not x.is_neg(),
    "another place": lambda x: x.is_meta,
    "sparseness": lambda x: x.is_sparse,
    "a parameter": lambda x: type(x) is nn.Parameter,
    "a subclass": lambda x: type(x) not in layout.PLAIN,
    "zeros from nowhere": lambda x: x._is_zerotensor() and x.shape == (3, 2),
    "negation": lambda x: x.is_neg() and x.shape == (3, 2),
}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("overlooked", OVERLOOKED)
def test_a_check_that_overlooks_one_thing_in_one_place_is_not_used(overlooked: str, place: int, monkeypatch) -> None:
    real = layout.kind_of_likeness.__wrapped__()

    class Overlooking:
        def __init__(self, *tensors: Tensor, **lists: object) -> None:
            self.tensors, self.real = tensors, real(*tensors, **lists)

        def check(self, *tensors: Tensor | None) -> bool:
            seen = list(tensors)
            if isinstance(seen[place], Tensor) and is_overlooked(seen[place]):
                seen[place] = self.tensors[place].clone()
            return self.real.check(*seen)

    is_overlooked: Callable[[Tensor], bool] = lambda x: False  # noqa: E731
    monkeypatch.setattr("torch._C._dynamo.guards.TensorGuards", Overlooking)
    assert layout.kind_of_likeness.__wrapped__() is Overlooking
    is_overlooked = OVERLOOKED[overlooked]
    assert layout.kind_of_likeness.__wrapped__() is None


def test_tensors_lie_like_labels_that_are_in_another_order_and_no_others() -> None:
    places = layout.Layout([torch.zeros(2, 3, dtype=torch.uint8).t()], torch.float32)
    turned, straight = torch.ones(2, 3).t(), torch.ones(3, 2)
    assert places.addresses([turned], [turned + 1]) is not None
    assert places.addresses([straight], [turned]) is None
    assert places.addresses([turned], [straight]) is None
