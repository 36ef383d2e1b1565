"""The recorder looks whether the ranks agree whenever something is kept, and stops at the first or second signal."""

import signal
import threading
from pathlib import Path

import pytest
import torch

from bcsc.distributed.agreement import RanksDisagreeError
from bcsc.distributed.collectives import Ranks
from bcsc.runs.build import build_run
from bcsc.runs.folder import RunFolder
from bcsc.runs.recorder import Recorder, stop_asked_by_signal
from bcsc.runs.spec import RunSpec
from bcsc.training.history import EpochRow
from bcsc.training.watcher import Watcher
from tests.ranks_in_threads import in_threads

ONE_AT_A_TIME = threading.Lock()  # networks are drawn from a generator that all threads have in common
SPEC = RunSpec(data="digits", subset=40, epochs=3, batch_size=20, blocks=2, seed=1)


class Meddling(Watcher):
    """Changes a weight of one rank after an epoch."""

    def __init__(self, weight: torch.Tensor, after_epoch: int) -> None:
        self.weight, self.after_epoch = weight, after_epoch

    def end_epoch(self, row: EpochRow) -> None:
        if row.epoch == self.after_epoch:
            self.weight.data.add_(1)


def recorded(ranks: Ranks, folder: Path, meddles_after: int) -> str:
    """A run on one of the ranks; what stops it, if anything does."""
    with ONE_AT_A_TIME:
        trainer, _ = build_run(SPEC, None, ranks)
    weight = next(trainer.model.parameters())
    watcher = Meddling(weight, meddles_after) if ranks.rank == 1 else Watcher()
    try:
        Recorder(RunFolder(folder), SPEC, trainer, watcher=watcher).run()
    except RanksDisagreeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_rank_that_drifts_away_while_it_trains_is_noticed_at_the_next_checkpoint(tmp_path: Path, epoch: int) -> None:
    messages = in_threads(2, recorded, tmp_path / "run", epoch)
    expected = f"After {epoch + 1} epochs, at inner step 4, rank 1 of 2 differs from the others"
    assert [message[: len(expected)] for message in messages] == [expected] * 2
    assert recorded_rows(tmp_path / "run") == epoch


def recorded_rows(folder: Path) -> int:
    return len((folder / "metrics.jsonl").read_text().splitlines())


def test_ranks_that_agree_are_left_alone(tmp_path: Path) -> None:
    assert in_threads(2, recorded, tmp_path / "run", 0) == ["", ""]
    assert recorded_rows(tmp_path / "run") == 3


def test_the_first_signal_asks_and_the_second_acts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_asked_by_signal() as stop_asked:
        assert not stop_asked()
        signal.raise_signal(signal.SIGTERM)
        assert stop_asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_than_the_main_one_is_not_asked() -> None:
    answers: list[bool] = []

    def ask() -> None:
        with stop_asked_by_signal() as stop_asked:
            answers.append(stop_asked())

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert answers == [False]
