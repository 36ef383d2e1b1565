"""A run tells all in its folder, shares it with no other run and survives bad days."""

import json
import math
import re
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import bcsc
from bcsc.errors import CheckpointError, Diverged, InvalidArgumentError, StateMismatchError
from bcsc.files import WriteError
from bcsc.runs.batches import FeederData
from bcsc.runs.folder import FolderBusyError, RunFolder
from bcsc.runs.run import RunOptions, torch_settings
from bcsc.runs.spec import spec_to_toml
from bcsc.training.checkpoint import read_checkpoint
from bcsc.training.trainer import Trainer
from bcsc.training.watcher import Watcher
from tests.unit.runs import tiny_run

ASIDE = "run.aside-1"
SPEC = bcsc.RunSpec(data="digits", subset=200, epochs=2, blocks=2, outliers="symmetric:0.15", threads=1)


def test_a_finished_folder_tells_all(tmp_path: Path) -> None:
    result = bcsc.run(SPEC, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["learning_rate"] for row in rows] == pytest.approx([0.1, 0.01])
    assert [row["gradient_evaluations"] for row in rows] == [400, 800]
    assert all(0 <= row["test_accuracy"] <= 100 and row["seconds"] > 0 for row in rows)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == result.summary
    assert summary["outliers"] == {"requested": 0.15, "realised": 0.15, "count": 30}
    assert summary["test_accuracy"]["final"] == rows[-1]["test_accuracy"]
    outliers = json.loads((tmp_path / "run" / "outliers.json").read_text())
    assert len(set(outliers["indices"])) == 30
    origin = json.loads((tmp_path / "run" / "origin.json").read_text())
    assert origin["torch"] == torch.__version__
    assert origin["cpu"] == torch.backends.cpu.get_cpu_capability() != ""
    assert origin["started"] <= origin["ended"]
    assert bcsc.run(SPEC, tmp_path / "run").history == result.history


def test_the_same_spec_gives_the_same_run_and_leaves_the_global_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state(), torch.get_num_threads()
    one = bcsc.run(SPEC, tmp_path / "one")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]
    torch.manual_seed(6)
    two = bcsc.run(SPEC, tmp_path / "two")
    assert [row.train_loss for row in one.history] == [row.train_loss for row in two.history]


def test_another_configuration_is_refused_with_the_differences(tmp_path: Path) -> None:
    bcsc.run(SPEC, tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    other = bcsc.RunSpec(data="digits", subset=200, epochs=2, blocks=3, threads=1)
    with pytest.raises(StateMismatchError, match="blocks was 2, is 3; outliers was 'symmetric:0.15', is 'none'"):
        bcsc.run(other, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_restart_begins_anew_and_keeps_the_old_folder_aside(tmp_path: Path) -> None:
    bcsc.run(SPEC, tmp_path / "run")
    other = bcsc.RunSpec(data="digits", subset=200, epochs=1, threads=1)
    for number in (1, 2):
        result = bcsc.run(other, tmp_path / "run", bcsc.RunOptions(restart=True))
        assert len(result.history) == 1
        assert (tmp_path / f"run.aside-{number}" / "summary.json").exists()
    assert json.loads((tmp_path / "run.aside-1" / "summary.json").read_text())["epochs"] == 2


@pytest.mark.parametrize("way", ["the working directory", "a link"])
def test_restart_begins_anew_wherever_the_path_leads(tmp_path: Path, way: str, monkeypatch) -> None:
    bcsc.run(SPEC, tmp_path / "run")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "run")
    out = "." if way == "the working directory" else tmp_path / "link"
    assert len(bcsc.run(replace(SPEC, epochs=1), out, bcsc.RunOptions(restart=True)).history) == 1
    epochs = {name: json.loads((tmp_path / name / "summary.json").read_text())["epochs"] for name in ("run", ASIDE)}
    assert epochs == {"run": 1, ASIDE: 2}


def test_a_finished_run_whose_last_checkpoint_is_damaged_makes_its_last_epoch_again(tmp_path: Path) -> None:
    whole = tiny_run.train(tmp_path)
    path = tmp_path / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    again = tiny_run.train(tmp_path)
    assert len(again.history) == len(whole.history) == tiny_run.SETTINGS["epochs"]
    for one, other in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path).locked():
        assert RunFolder(tmp_path).is_busy()
        with pytest.raises(FolderBusyError, match="Another process is training in"):
            bcsc.run(SPEC, tmp_path)
    assert not RunFolder(tmp_path).is_busy()


@pytest.mark.parametrize(
    ("name", "content"),
    [("metrics.jsonl", None), ("metrics.jsonl", "nonsense\n"), ("summary.json", "{}"), ("summary.json", "[]")],
)
def test_a_damaged_file_of_a_finished_run_is_made_anew_from_the_checkpoint(tmp_path: Path, name, content) -> None:
    bcsc.run(SPEC, tmp_path)
    before = {path.name: path.read_text() for path in tmp_path.glob("*.json*") if path.name != "origin.json"}
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    bcsc.run(SPEC, tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.glob("*.json*") if path.name != "origin.json"} == before


def test_results_without_their_configuration_are_refused(tmp_path: Path) -> None:
    bcsc.run(SPEC, tmp_path)
    (tmp_path / "run.toml").write_bytes(b"\xff")
    with pytest.raises(StateMismatchError, match="run.toml cannot be read.*--restart"):
        bcsc.run(SPEC, tmp_path)
    for name in ("run.toml", "metrics.jsonl", "summary.json"):
        (tmp_path / name).unlink()
        with pytest.raises(StateMismatchError, match="holds results but no run.toml"):
            bcsc.run(SPEC, tmp_path)


def test_own_data_of_another_size_or_another_loss_is_another_run(tmp_path: Path) -> None:
    def data(size: int) -> TensorDataset:
        return TensorDataset(torch.ones(size, 3), torch.zeros(size, dtype=torch.int64))

    settings = {"out": tmp_path, "blocks": 2, "epochs": 1}
    bcsc.train(nn.Linear(3, 2), data(40), data(5), **settings)
    with pytest.raises(StateMismatchError, match=r"data was 'TensorDataset of 40 samples \(\w{8}\)', is"):
        bcsc.train(nn.Linear(3, 2), data(41), data(5), **settings)
    with pytest.raises(StateMismatchError, match=r"model was 'Linear of 8 parameters \(\w{8}\), cross_entropy', is"):
        bcsc.train(nn.Linear(3, 2), data(40), data(5), loss_fn=nn.functional.multi_margin_loss, **settings)


def test_a_test_loss_that_is_not_finite_is_divergence(tmp_path: Path) -> None:
    data = TensorDataset(torch.ones(10, 3), torch.zeros(10, dtype=torch.int64))
    broken = TensorDataset(torch.full((10, 3), math.inf), torch.zeros(10, dtype=torch.int64))
    with pytest.raises(Diverged, match="The test loss is nan in epoch 1, inner step 1, block 1"):
        bcsc.train(nn.Linear(3, 2), data, broken, out=tmp_path, blocks=2, epochs=1)
    assert read_checkpoint(tmp_path / "checkpoint.pt")["rows"] == []


def test_an_unwritable_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WriteError, match="Cannot write in .*Not a directory.*another --out"):
        bcsc.run(SPEC, tmp_path / "file" / "run")


def test_a_method_that_there_is_not_is_named(tmp_path: Path) -> None:
    data = TensorDataset(torch.ones(8, 3), torch.zeros(8, dtype=torch.int64))
    with pytest.raises(InvalidArgumentError, match="^method must be one of .*got 'sgdd'. Did you mean 'sgd'"):
        bcsc.train(nn.Linear(3, 2), data, data, out=tmp_path, method="sgdd", blocks=2, epochs=1)


def test_divergence_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path: Path) -> None:
    model, options = nn.Linear(3, 2), bcsc.RunOptions(checkpoint_every=1)
    inputs = torch.ones(40, 3)
    inputs[30:] = math.nan
    data = TensorDataset(inputs, torch.zeros(40, dtype=torch.int64))
    call = {"out": tmp_path, "blocks": 2, "epochs": 3, "batch_size": 5, "options": options}
    with pytest.raises(
        Diverged, match=r"The loss is nan in epoch 1, inner step \d+, block [01], at learning rate 0.1.*smaller"
    ):
        bcsc.train(model, data, data, **call)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["state"] == "diverged"
    assert "nan" in summary["message"]
    saved = read_checkpoint(tmp_path / "checkpoint.pt")
    assert all(tensor.isfinite().all() for tensor in saved["model"].values())
    assert saved["losses"].isfinite().all()
    with pytest.raises(Diverged, match=f"^{re.escape(summary['message'])}$"):
        bcsc.train(nn.Linear(3, 2), data, data, **call)


def test_a_run_that_diverged_says_so_again_when_it_is_asked_for_again(tmp_path: Path) -> None:
    spec = replace(SPEC, lr=1e29)
    said = []
    for _ in range(2):
        with pytest.raises(Diverged, match="The loss is") as caught:
            bcsc.run(spec, tmp_path)
        said.append((str(caught.value), (tmp_path / "origin.json").read_text()))
    assert said[0] == said[1], "the same words, and nothing is trained again"


def test_the_generators_that_are_put_back_are_those_of_the_runs_device(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = []

    @contextmanager
    def fork_rng(devices, device_type):
        forked.append((devices, device_type))
        yield

    monkeypatch.setattr("torch.random.fork_rng", fork_rng)
    for device in ("mps", "cpu"):
        monkeypatch.setattr("bcsc.runs.run.check_device", lambda _name, device=device: torch.device(device))
        with torch_settings(SPEC):
            pass
    assert forked == [([torch.device("mps")], "mps"), ([], "cuda")]


def test_a_damaged_checkpoint_gives_way_to_the_older_one_and_the_run_ends_the_same(tmp_path: Path) -> None:
    from tests.unit.runs.test_exact_continuation import assert_same_run

    for name in ("broken", "whole"):
        tiny_run.train(tmp_path / name)
    broken = tmp_path / "broken"
    (broken / "checkpoint.pt").write_bytes((broken / "checkpoint.pt").read_bytes()[:1000])
    for name in ("summary.json", "metrics.jsonl"):
        (broken / name).unlink()
    said = []
    watcher = _Listener(said)
    bcsc.train(
        tiny_run.network(),
        *tiny_run.sets(),
        out=broken,
        options=bcsc.RunOptions(checkpoint_every=3, watcher=watcher),
        **tiny_run.SETTINGS,
    )
    assert any("Going on from checkpoint.previous.pt" in text for text in said)
    assert_same_run(broken, tmp_path / "whole")


class _Listener(bcsc.Watcher):
    def __init__(self, said: list[str]) -> None:
        self.said = said

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_checkpoint_of_another_network_is_refused_and_kept(tmp_path: Path) -> None:
    other = nn.Sequential(nn.Flatten(), nn.Linear(1024, 10))
    for name, model in (("this", tiny_run.network()), ("other", other)):
        tiny_run.train(tmp_path / name, model=model, epochs=1)
        (tmp_path / name / "summary.json").unlink()
    before = (tmp_path / "this" / "checkpoint.pt").read_bytes()
    with pytest.raises(StateMismatchError, match="holds another run: model was 'Sequential of"):
        tiny_run.train(tmp_path / "this", model=other, epochs=1)
    shutil.copy(tmp_path / "this" / "checkpoint.pt", tmp_path / "other")
    with pytest.raises(CheckpointError, match="is not of this run.*--restart"):
        tiny_run.train(tmp_path / "other", model=other, epochs=1)
    for name in ("this", "other"):
        assert (tmp_path / name / "checkpoint.pt").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"lr": 0.05}, "lr was 0.05, is None"),
        ({"momentum": 0.8}, "momentum was 0.8, is 0.9"),
        ({"subset": 250}, "subset was 250, is 200"),
        ({"optimizer_options": {"nesterov": True}}, "optimizer_options was {'nesterov': True}, is {}"),
    ],
)
def test_a_checkpoint_of_a_run_that_differs_in_one_setting_is_refused(tmp_path: Path, change, difference) -> None:
    short = replace(SPEC, epochs=1)
    bcsc.run(short, tmp_path / "mine")
    bcsc.run(replace(short, **change), tmp_path / "other")
    checkpoint = tmp_path / "mine" / "checkpoint.pt"
    shutil.copy(tmp_path / "other" / "checkpoint.pt", checkpoint)
    (tmp_path / "mine" / "summary.json").unlink()
    with pytest.raises(CheckpointError, match=re.escape(f"It is of another run: {difference}. Take another folder")):
        bcsc.run(short, tmp_path / "mine")
    earlier = {name: value for name, value in read_checkpoint(checkpoint).items() if name != "run"}
    torch.save(earlier, checkpoint)  # as of an earlier version, which did not tell its configuration
    with pytest.raises(CheckpointError, match="is not of this run. .* (was|is not that of epoch 1)"):
        bcsc.run(short, tmp_path / "mine")


def test_a_folder_whose_checkpoints_are_gone_is_not_written_over(tmp_path: Path) -> None:
    bcsc.run(SPEC, tmp_path)
    for name in ("checkpoint.pt", "checkpoint.previous.pt", "summary.json"):
        (tmp_path / name).unlink()
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="holds 2 epochs, but no checkpoint of them.*--restart"):
        bcsc.run(SPEC, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_folder_of_an_earlier_version_is_continued(tmp_path: Path) -> None:
    for name in ("whole", "earlier"):
        bcsc.run(SPEC, tmp_path / name)
    earlier = tmp_path / "earlier"
    state = read_checkpoint(earlier / "checkpoint.previous.pt")
    del state["run"]
    torch.save(state, earlier / "checkpoint.pt")
    (earlier / "run.toml").write_text(spec_to_toml(SPEC))
    (earlier / "summary.json").unlink()
    assert len(state["rows"]) == 1
    result = bcsc.run(SPEC, earlier)
    assert [row[:7] for row in result.history] == [row[:7] for row in RunFolder(tmp_path / "whole").read().rows]


def test_any_network_and_any_data_set_train(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 4, generator=generator)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    result = bcsc.train(nn.Linear(4, 2), data, data, out=tmp_path, blocks=2, epochs=3, batch_size=32)
    assert result.summary["test_accuracy"]["final"] > 95


def test_the_result_gives_the_history_and_the_trained_network_of_a_finished_run_too(tmp_path: Path) -> None:
    trained = tiny_run.network()
    first = tiny_run.train(tmp_path, trained, epochs=1)
    again = tiny_run.train(tmp_path, tiny_run.network(), epochs=1)
    assert first.model is trained
    assert again.history == first.history
    for ours, theirs in zip(again.model.parameters(), trained.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_progress_is_shown_where_there_is_a_terminal_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_run.train(tmp_path / "piped", epochs=1)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    tiny_run.train(tmp_path / "seen", epochs=1)
    assert "epoch 1/1" in capsys.readouterr().out


def test_a_watcher_hears_every_step_and_every_epoch(tmp_path: Path) -> None:
    heard: list[str] = []

    class Counting(bcsc.Watcher):
        def after_step(self, loss: torch.Tensor) -> None:
            heard.append("step")

        def end_epoch(self, row: bcsc.EpochRow) -> None:
            heard.append(f"epoch {row.epoch}")

    tiny_run.train(tmp_path, epochs=2, watcher=Counting())
    assert heard == ["step"] * 28 + ["epoch 1"] + ["step"] * 28 + ["epoch 2"]


class Hoarder(nn.Module):
    """Keeps every batch that it is shown in training, and has its gradient taken."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.seen = tiny_run.network(), []

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.append(images.requires_grad_())
        return self.network(images)


def test_a_network_of_ones_own_may_keep_its_batches(tmp_path: Path) -> None:
    model = Hoarder()
    tiny_run.train(tmp_path, model, epochs=1)
    assert len({images.data_ptr() for images in model.seen}) == len(model.seen) == 28
    assert all(images.grad is not None for images in model.seen)


def test_that_batches_overwrite_each_other_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overwriting = bcsc.run(SPEC, tmp_path / "overwriting")

    def build(*arguments: object, overwrite: bool) -> FeederData:
        assert overwrite
        return FeederData(*arguments, overwrite=False)

    monkeypatch.setattr("bcsc.runs.build.FeederData", build)
    apart = bcsc.run(SPEC, tmp_path / "apart")
    assert [row.test_loss for row in apart.history] == [row.test_loss for row in overwriting.history]


def test_what_has_no_meaning_for_own_data_is_refused(tmp_path: Path) -> None:
    data = TensorDataset(torch.ones(2, 1), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InvalidArgumentError, match="subset= has no meaning"):
        bcsc.train(nn.Linear(1, 2), data, data, out=tmp_path, subset=1)
    with pytest.raises(InvalidArgumentError, match="length of at least 1"):
        bcsc.train(nn.Linear(1, 2), TensorDataset(torch.ones(0, 1)), data, out=tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"A setting must be one of .*epochs.*, got 'epoch'"):
        bcsc.train(nn.Linear(1, 2), data, data, out=tmp_path, epoch=1)
    with pytest.raises(InvalidArgumentError, match=r"model must be a torch.nn.Module, got str"):
        bcsc.train("lenet4", data, data, out=tmp_path)
    with pytest.raises(InvalidArgumentError, match="run takes a RunSpec, got dict"):
        bcsc.run({"data": "mnist"}, tmp_path)
    for call in (partial(bcsc.run, SPEC), partial(bcsc.train, nn.Linear(1, 2), data, data)):
        for out in (None, "", 3, "a\0b"):
            message = re.escape(f"out must be the path of the run's folder, got {out!r}")
            with pytest.raises(InvalidArgumentError, match=message):
                call(out=out)
        for options in ({}, {"restart": True}, False):
            with pytest.raises(InvalidArgumentError, match="options must be RunOptions, got (dict|bool)"):
                call(out=tmp_path, options=options)
    with pytest.raises(InvalidArgumentError, match="checkpoint_every must be a whole number of at least 1, got 0"):
        bcsc.RunOptions(checkpoint_every=0)
    assert list(tmp_path.iterdir()) == []


def test_tensors_of_a_kind_of_their_own_are_inputs_too(tmp_path: Path) -> None:
    class Picture(torch.Tensor):
        pass

    data = [(torch.ones(1).as_subclass(Picture), 0)] * 4
    result = bcsc.train(nn.Linear(1, 2), data, data, out=tmp_path / "run", epochs=1, blocks=1)
    assert result.summary["state"] == "finished"


@pytest.mark.parametrize("data", [TensorDataset(torch.ones(4, 1)), [{"input": 1, "label": 0}] * 4, torch.ones(4, 3)])
def test_a_data_set_that_gives_no_pairs_is_refused(tmp_path: Path, data: object) -> None:
    with pytest.raises(InvalidArgumentError, match="must give pairs of an input and a label"):
        bcsc.train(nn.Linear(1, 2), data, data, out=tmp_path / "run", epochs=1, blocks=1)


@pytest.mark.parametrize("change", [{"precision": "bf16"}, {"deterministic": True}, {"optimizer": "adamw"}])
def test_other_ways_to_train(tmp_path: Path, change: dict) -> None:
    watcher = Deterministic()
    result = bcsc.run(replace(SPEC, epochs=1, **change), tmp_path, RunOptions(watcher=watcher))
    assert math.isfinite(result.history[0].train_loss)
    assert watcher.was_on == {"deterministic" in change}
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_way_to_be_deterministic_is_put_back_as_it_was(tmp_path: Path) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        bcsc.run(replace(SPEC, epochs=1), tmp_path)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_network_that_cannot_be_compiled_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FailingError(Exception):
        __module__ = "torch._inductor.exc"

    def failing(*_: object) -> object:
        raise FailingError("no compiler\nand a long story")

    monkeypatch.setattr(nn.Module, "compile", lambda _: None)

    monkeypatch.setattr(Trainer, "run", failing)
    with pytest.raises(InvalidArgumentError, match=r"cannot be compiled here: no compiler\. Leave --compile out\.$"):
        bcsc.run(replace(SPEC, epochs=1, compile=True), tmp_path / "compiled")
    with pytest.raises(FailingError):
        bcsc.run(replace(SPEC, epochs=1), tmp_path / "plain")


def test_a_damaged_list_of_outliers_is_made_anew(tmp_path: Path) -> None:
    spec = replace(SPEC, epochs=2, outliers="symmetric:0.1")
    with pytest.raises(RuntimeError, match="killed"):
        bcsc.run(spec, tmp_path, RunOptions(watcher=KilledAfterAnEpoch()))
    whole = (tmp_path / "outliers.json").read_text()
    (tmp_path / "outliers.json").write_text("{")
    bcsc.run(spec, tmp_path)
    assert (tmp_path / "outliers.json").read_text() == whole


class KilledAfterAnEpoch(Watcher):
    def end_epoch(self, row: object) -> None:
        raise RuntimeError("killed")


class Deterministic(Watcher):
    """Looks at every step whether torch was told to be deterministic."""

    def __init__(self) -> None:
        self.was_on: set[bool] = set()

    def after_step(self, loss: Tensor) -> None:
        self.was_on.add(torch.are_deterministic_algorithms_enabled())
