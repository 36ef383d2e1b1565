"""A record is worth something if its run can be made again: one is, from its own configuration."""

import json
from pathlib import Path

import pytest

from bcsc.cli import main

RECORD = Path(__file__).resolve().parents[2] / "records" / "repeatable" / "bcsc-m-4"


def rows(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_repeated_from_its_own_configuration_gives_its_numbers_to_rounding(tmp_path: Path) -> None:
    assert main(["train", "--config", str(RECORD / "run.toml"), "--out", str(tmp_path / "again")]) == 0
    recorded, repeated = rows(RECORD), rows(tmp_path / "again")
    assert len(recorded) == len(repeated) == 4
    for before, after in zip(recorded, repeated, strict=True):
        # Another CPU rounds otherwise, which so gentle a run lets grow to about 1e-6.
        assert after["train_loss"] == pytest.approx(before["train_loss"], rel=1e-4)
        assert after["test_loss"] == pytest.approx(before["test_loss"], rel=1e-4)
        assert after["test_accuracy"] == pytest.approx(before["test_accuracy"], abs=100 / 360)
        for exact in ("epoch", "learning_rate", "gradient_evaluations"):
            assert after[exact] == before[exact]
