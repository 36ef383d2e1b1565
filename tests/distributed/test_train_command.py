"""``bcsc train`` by two processes: under torchrun, with a rank killed, and with a rank that is unlike."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bcsc.distributed.collectives import RankLostError
from bcsc.runs.folder import RunFolder
from bcsc.training.checkpoint import read_checkpoint

pytestmark = pytest.mark.slow

SETTINGS = "--data digits --blocks 4 --batch-size 32 --epochs 2 --dropout 0.1 --checkpoint-every 20"
RUN = ["train", *SETTINGS.split()]


def two_processes(out: Path, *more: str, of_second: tuple[str, ...] = ()) -> list[subprocess.Popen[str]]:
    """What torchrun would start, but with nobody who ends one process when the other has died."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    group = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "bcsc", *RUN, "--out", str(out), *more]
    return [
        subprocess.Popen(
            [*command, *extra],
            env={**group, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, extra in enumerate(((), of_second))
    ]


def ended(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and messages of each."""
    texts = [process.communicate(timeout=300) for process in processes]
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def wait_for_step(out: Path, epoch: int, step: int) -> None:
    """Until a checkpoint from inside the epoch is there."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        state = RunFolder(out).read_checkpoint(read_checkpoint)[0]
        own = state["optimizer"]["block_cyclic"] if state else {"epoch": 0, "step": 0}
        if (own["epoch"], own["step"]) >= (epoch, step):
            return
        time.sleep(0.05)
    raise TimeoutError(f"no checkpoint of epoch {epoch}, step {step} in {out}")


def final_state(out: Path) -> dict[str, torch.Tensor]:
    state, _ = RunFolder(out).read_checkpoint(read_checkpoint)
    assert state is not None
    assert len(state["rows"]) == 2
    return state["model"]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    """A run by torchrun itself."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, "-m", "bcsc", *RUN, "--out", str(out)], check=True, capture_output=True)
    return out


@pytest.mark.parametrize("killed", [0, 1])
def test_after_a_rank_is_killed_the_other_ends_and_the_resumed_run_equals_the_unbroken_one(killed, unbroken, tmp_path):
    out = tmp_path / "run"
    processes = two_processes(out)
    wait_for_step(out, epoch=1, step=40)
    processes[killed].kill()
    died = time.monotonic()
    _, message = processes[1 - killed].communicate(timeout=60)
    assert time.monotonic() - died < 60
    assert processes[1 - killed].returncode == RankLostError.exit_code
    assert "has lost touch with another rank" in message
    assert "The same command goes on from there." in message
    processes[killed].communicate()
    assert [code for code, _, _ in ended(two_processes(out))] == [0, 0]
    ours, theirs = final_state(out), final_state(unbroken)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_rank_with_other_settings_is_named_and_nothing_is_written(tmp_path):
    processes = two_processes(tmp_path / "run", of_second=("--seed", "1"))
    for code, _, message in ended(processes):
        assert code == 2
        assert "At the start, rank 1 of 2 differs from the others" in message
    assert not (tmp_path / "run").exists()


def test_the_first_rank_alone_speaks(tmp_path):
    (_, first, _), (_, second, _) = ended(two_processes(tmp_path / "run", "--epochs", "1"))
    assert "test accuracy: final" in first
    assert second == ""


def test_sync_batch_norm_on_the_cpu_is_refused(tmp_path, capsys):
    from bcsc.cli import main

    assert main([*RUN, "--sync-batch-norm", "--out", str(tmp_path / "run")]) == 2
    assert "SyncBatchNorm does not run on the CPU" in capsys.readouterr().err
