"""Every setting of a run reaches what it is about: the network, the optimizer, the data, the plan."""

from typing import Any

import pytest
import torch
from torch import nn

from bcsc.data.dataset import DataSet
from bcsc.distributed.block_parallel import BlockParallel
from bcsc.distributed.collectives import Ranks
from bcsc.optim.block_cyclic import BlockCyclic
from bcsc.runs import build
from bcsc.runs.build import build_run
from bcsc.runs.spec import RunSpec
from bcsc.training.schedule import learning_rate
from bcsc.training.trainer import Trainer


def built(ranks: Ranks | None = None, **settings: Any) -> Trainer:
    spec = RunSpec(**{"data": "digits", "subset": 64, "epochs": 8, "batch_size": 16, **settings})
    trainer, _ = build_run(spec, None, ranks or Ranks())
    return trainer


def test_the_network_has_the_dropout_that_was_asked_for() -> None:
    assert {layer.p for layer in built(dropout=0.3).model.modules() if isinstance(layer, nn.Dropout)} == {0.3}


@pytest.mark.parametrize(
    ("name", "value"), [("granularity", "row"), ("mask", "all"), ("seed", 5), ("num_blocks", 3), ("order", "cyclic")]
)
def test_the_optimizer_is_built_as_asked(name: str, value: Any) -> None:
    settings = {} if name == "order" else {"blocks" if name == "num_blocks" else name: value}
    optimizer: Any = built(**settings).optimizer
    assert type(optimizer) is BlockCyclic
    assert getattr(optimizer, name) == value


def test_the_base_has_the_rate_the_momentum_and_the_decay_that_were_asked_for() -> None:
    (group,) = built(lr=0.02, momentum=0.7, weight_decay=0.01).optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.02, 0.7, 0.01)


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 0.1), ("adagrad", 0.1), ("adadelta", 0.1), ("adamw", 1e-3)])
def test_the_optimizers_of_the_paper_have_its_rate_and_others_their_own(optimizer: str, rate: float) -> None:
    trainer = built(optimizer=optimizer)
    assert trainer.optimizer.param_groups[0]["lr"] == rate
    assert trainer.plan.learning_rate(0) == rate


@pytest.mark.parametrize("schedule", ["staircase", "constant", "cosine"])
def test_the_rate_follows_the_schedule(schedule: Any) -> None:
    plan = built(schedule=schedule, lr=0.5).plan
    rates = [plan.learning_rate(epoch) for epoch in range(8)]
    assert rates == [learning_rate(schedule, 0.5, epoch, 8) for epoch in range(8)]
    assert len(set(rates)) == {"staircase": 3, "constant": 1, "cosine": 8}[schedule]


def test_bfloat16_is_by_autocast_and_float32_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcsc.training.precision.make_bfloat16_work", lambda: None)
    assert built(precision="bf16").plan.autocast is torch.bfloat16
    assert built().plan.autocast is None


def test_the_network_is_compiled_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    built()
    assert compiled == []
    model = built(compile=True).model
    assert compiled == [model]


@pytest.mark.parametrize(
    ("parallel", "kind", "by"), [("blocks", BlockParallel, "steps"), ("exact", BlockCyclic, "samples")]
)
def test_the_ranks_share_out_the_steps_or_the_samples(parallel: str, kind: type, by: str) -> None:
    trainer = built(Ranks(0, 2), parallel=parallel, blocks=4)
    assert type(trainer.optimizer) is kind
    assert trainer.data.division.by == by


@pytest.mark.parametrize(("ranks", "downloads"), [(Ranks(), True), (Ranks(1, 2), False)])
def test_several_processes_do_not_fetch_data(ranks: Ranks, downloads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    load_data = build.load_data

    def noting(spec: RunSpec, *, download: bool) -> DataSet:
        asked.append(download)
        return load_data(spec, download=download)

    monkeypatch.setattr(build, "load_data", noting)
    built(ranks)
    assert asked == [downloads]
