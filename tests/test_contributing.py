"""What CONTRIBUTING shows is tried: a method, a network, a data set and an experiment, each added by its few lines."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bcsc
from bcsc.cli import main
from bcsc.data import registry
from bcsc.data.decoders.arrays import Arrays
from bcsc.data.source import Source
from bcsc.experiments.planning.plan_file import experiment_from_toml
from bcsc.models import MODELS, ImageClassifier, Model
from bcsc.models.layers import conv_norm_relu, pooled_classifier
from bcsc.optim import METHODS, Method

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
BLOCKS = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
METHOD, NETWORK, NETWORK_LINE, DATA_SET, PLAN = BLOCKS
TINY: dict[str, Any] = {"data": "digits", "epochs": 1, "blocks": 2, "subset": 64, "threads": 1}


@pytest.mark.parametrize("block", BLOCKS)
def test_each_takes_less_than_ten_lines(block: str) -> None:
    assert len(block.splitlines()) < 10


def names_in(code: str, **names: Any) -> dict[str, Any]:
    exec(code, names)
    return names


def test_a_method_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, method),) = eval(f"{{{METHOD}}}", {"Method": Method}).items()
    assert name not in METHODS
    monkeypatch.setitem(METHODS, name, method)  # type: ignore[misc]
    result = bcsc.run(bcsc.RunSpec(method=name, **TINY), tmp_path / "run")
    assert result.summary["gradient_evaluations"] == 2 * 64
    assert main(["train", "--data", "digits", "--method", "rbc-randon", "--out", str(tmp_path / "no")]) == 2


def test_a_network_is_a_function_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = {"conv_norm_relu": conv_norm_relu, "pooled_classifier": pooled_classifier}
    found = names_in(NETWORK, ImageClassifier=ImageClassifier, **layers)
    ((name, model),) = eval(f"{{{NETWORK_LINE}}}", {"Model": Model, "tiny": found["tiny"]}).items()
    monkeypatch.setitem(MODELS, name, model)  # type: ignore[misc]
    assert bcsc.run(bcsc.RunSpec(model=name, **TINY), tmp_path / "run").summary["state"] == "finished"
    assert main(["reproduce", "--list", "cifar10", "--models", name]) == 0, "its time is measured"


def test_a_data_set_is_a_decoder_and_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = names_in(DATA_SET, Path=Path, Arrays=Arrays, Source=Source, np=np, torch=torch)
    monkeypatch.setitem(registry.SOURCES, "stripes", found["STRIPES"])  # type: ignore[misc]
    monkeypatch.setenv("BCSC_DATA", str(tmp_path))
    stripe = np.tile(np.array([0, 255], dtype=np.uint8), (32, 16))
    pair = np.stack([stripe, stripe.T])[:, None]
    parts = (np.tile(pair, (32, 1, 1, 1)), np.arange(64) % 2, np.tile(pair, (8, 1, 1, 1)), np.arange(16) % 2)
    (tmp_path / "stripes").mkdir()
    np.savez(tmp_path / "stripes" / "stripes.npz", **dict(zip(Arrays._fields, parts, strict=True)))
    assert main(["data", "check"]) == 0
    result = bcsc.run(bcsc.RunSpec(**{**TINY, "data": "stripes", "epochs": 4, "batch_size": 8}), tmp_path / "run")
    assert result.history[-1].test_accuracy == 100.0


def test_an_experiment_is_a_plan() -> None:
    experiment = experiment_from_toml(PLAN, "momentum", "CONTRIBUTING.md")
    assert {run.spec.momentum for run in experiment.runs()} == {0.0, 0.9}
    assert len(experiment.runs()) == 2 * 2 * 3
    assert len(experiment.claims) == 1
