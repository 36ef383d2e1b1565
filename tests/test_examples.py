"""The examples run as they are, in less than sixty lines, to the result that they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
AS_ACCURATE = {  # in percent, at least; well below what they reach here
    "accelerate_loop": 85,
    "fine_tuning": 85,
    "fsdp2": 80,
    "lightning_trainer": 85,
    "own_network_and_data": 90,
    "plain_loop": 85,
    "transformers_trainer": 80,
}
OF_LIGHTNING = ["`isinstance(treespec, LeafSpec)` is deprecated", "The 'val_dataloader' does not have many workers"]

# gloo's threads may abort a process while Python shuts down, after all is done: this ends it before.
ENDING_AT_ONCE = "import os, runpy, sys\nrunpy.run_path(sys.argv.pop(1))\nsys.stdout.flush()\nos._exit(0)\n"

pytestmark = pytest.mark.slow


def run(name: str, folder: Path, *arguments: str, num_processes: int = 1) -> str:
    warnings = ["-W", "error", *[option for text in OF_LIGHTNING for option in ("-W", f"ignore:{text}")]]
    (folder / "ending_at_once.py").write_text(ENDING_AT_ONCE)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    launcher = [*torchrun, str(folder / "ending_at_once.py")] if num_processes > 1 else []
    command = [sys.executable, *warnings, *launcher, str(EXAMPLES / f"{name}.py"), str(folder / name), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> "Outputs":
    return Outputs(tmp_path_factory.mktemp("examples"))


class Outputs(dict[str, str]):
    """What the examples print, each run when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> str:
        self[name] = run(name, self.folder, num_processes=2 if name == "fsdp2" else 1)
        return self[name]


def accuracy_in(output: str) -> float:
    return float(re.findall(r"test accuracy ([\d.]+) %\n", output)[-1])


def test_every_example_is_short_and_has_a_test() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"quickstart", *AS_ACCURATE}
    assert all(len(path.read_text().splitlines()) < 60 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", AS_ACCURATE)
def test_the_example_is_as_accurate_as_it_should_be(name: str, outputs: Outputs) -> None:
    assert accuracy_in(outputs[name]) >= AS_ACCURATE[name]


def test_the_quickstart_lowers_the_loss(outputs: Outputs) -> None:
    losses = [float(loss) for loss in re.findall(r"loss of the last batch ([\d.]+)", outputs["quickstart"])]
    assert losses[-1] < losses[0] < 0.6


def test_the_plain_loop_goes_on_and_ends_alike(outputs: Outputs) -> None:
    whole, rest = outputs["plain_loop"], run("plain_loop", outputs.folder)
    assert rest.startswith("goes on at step 50 of epoch 3\n")
    assert rest.splitlines()[-1] == whole.splitlines()[-1]


def test_shards_go_on_from_a_checkpoint_and_end_alike(outputs: Outputs) -> None:
    whole = outputs["fsdp2"]
    assert run("fsdp2", outputs.folder, str(outputs.folder / "fsdp2" / "epoch-1"), num_processes=2) == whole


def test_the_trainer_of_transformers_goes_on_from_a_checkpoint_and_ends_alike(outputs: Outputs) -> None:
    name = "transformers_trainer"
    whole, checkpoints = outputs[name], (outputs.folder / name).glob("checkpoint-*")
    second = sorted(checkpoints, key=lambda each: int(each.name.partition("-")[2]))[1]
    assert run(name, outputs.folder, str(second)).splitlines()[-1] == whole.splitlines()[-1]


def test_accelerate_under_torchrun_shares_the_work_and_ends_alike(outputs: Outputs, tmp_path: Path) -> None:
    shared = run("accelerate_loop", tmp_path, num_processes=2)
    assert shared.count("test accuracy") == 1
    assert accuracy_in(shared) == pytest.approx(accuracy_in(outputs["accelerate_loop"]), abs=1)  # sums round otherwise


@pytest.mark.parametrize("name", ["accelerate_loop", "lightning_trainer"])
def test_the_trainers_end_where_the_plain_loop_does(name: str, outputs: Outputs) -> None:
    assert accuracy_in(outputs[name]) == accuracy_in(outputs["plain_loop"])
