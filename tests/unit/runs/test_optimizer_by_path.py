"""Any installed optimizer, by its import path; its options are those of its signature."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

from bcsc.errors import InvalidArgumentError, UnsupportedOptimizerError
from bcsc.runs.build import build_base, check_method
from bcsc.runs.spec import RunSpec
from tests.sign_descent import SignDescent

PATH = "tests.sign_descent:SignDescent"


def base(**settings: object) -> torch.optim.Optimizer:
    return build_base(RunSpec(**settings), nn.Linear(2, 2))  # type: ignore[arg-type]


def test_it_gets_what_it_takes_of_the_recipe_and_its_own_default_rate() -> None:
    optimizer = base(optimizer=PATH)
    assert isinstance(optimizer, SignDescent)
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (1e-3, 5e-4)
    assert base(optimizer=PATH, lr=0.5, optimizer_options={"flip": True}).defaults == {
        "lr": 0.5,
        "weight_decay": 5e-4,
        "flip": True,
    }


def test_a_path_into_torch_is_the_optimizer_of_that_name() -> None:
    assert type(base(optimizer="torch.optim:AdamW")) is torch.optim.AdamW


@pytest.mark.parametrize("text", ["class X(", "raise RuntimeError('no luck')"])
def test_a_module_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidArgumentError, match="There is no optimizer broken_module:X here: "):
        base(optimizer="broken_module:X")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "no_such_package:Adam"}, "no optimizer no_such_package:Adam here: No module named"),
        ({"optimizer": "tests.sign_descent:SignAscent"}, "has no attribute 'SignAscent'. Install its package"),
        ({"optimizer": ":Adam"}, "There is no optimizer :Adam here"),
        ({"optimizer": "..torch:Adam"}, r"There is no optimizer \.\.torch:Adam here"),
        ({"optimizer": "torch.nn:Linear"}, "torch.nn:Linear is a type, not a subclass of torch.optim.Optimizer"),
        ({"optimizer": "torch:pi"}, "torch:pi is a float"),
        ({"optimizer": "signdescent"}, r"optimizer \(or package.module:Name\) must be one of adafactor"),
        ({"optimizer": "tests.odd_optimizers:Rateless"}, r"Rateless has no learning rate \(lr\), which a run sets"),
        ({"optimizer": "tests.odd_optimizers:Hoarding"}, "Hoarding keeps a collections.deque, which no checkpoint can"),
        ({"optimizer": "tests.odd_optimizers:OnlyMatrices"}, "OnlyMatrices refuses .*: matrices only"),
        ({"optimizer": PATH, "optimizer_options": {"flop": True}}, "must be one of lr, weight_decay, flip, got 'flop'"),
        ({"optimizer": PATH, "optimizer_options": {"flip": 1}}, "option flip must be true or false, got 1"),
    ],
)
def test_what_is_not_there_or_not_taken_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        base(**settings)


@pytest.mark.parametrize(
    ("method", "blocks", "goes"), [("sgd", 8, True), ("bcsc", 1, True), ("bcsc", 8, False), ("magma", 1, False)]
)
def test_one_that_is_evaluated_elsewhere_is_refused_before_there_is_a_network_unless_all_moves(method, blocks, goes):
    pytest.importorskip("schedulefree")
    spec = RunSpec(method=method, blocks=blocks, optimizer="schedulefree:AdamWScheduleFree")
    with nullcontext() if goes else pytest.raises(UnsupportedOptimizerError, match="take another mask"):
        check_method(spec)
