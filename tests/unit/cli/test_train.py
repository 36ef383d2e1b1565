"""The command line: a run, or one line and exit code 2; never a traceback."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bcsc.cli import main
from bcsc.cli.train import interrupts_held
from bcsc.runs.spec import RunSpec, spec_from_toml

QUICK = ["--data", "digits", "--subset", "150", "--epochs", "1", "--threads", "1"]


def test_defaults_are_the_papers_recipe() -> None:
    spec = RunSpec()
    assert (spec.batch_size, spec.momentum, spec.weight_decay, spec.epochs) == (128, 0.9, 5e-4, 200)
    assert (spec.schedule, spec.seed, spec.mask, spec.granularity) == ("staircase", 0, "update", "element")


def test_a_run_its_own_file_fed_back_and_the_list(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    options = ["--optimizer", "adam", "--optimizer-options", "amsgrad=true", "--lr", "0.01", "--blocks", "3"]
    assert main(["train", *QUICK, *options, "--out", str(tmp_path / "one")]) == 0
    saved = spec_from_toml((tmp_path / "one" / "run.toml").read_text(), "")
    assert saved.optimizer_options == {"amsgrad": True}
    assert main(["train", "--config", str(tmp_path / "one" / "run.toml"), "--out", str(tmp_path / "two")]) == 0
    assert (tmp_path / "one" / "run.toml").read_text() == (tmp_path / "two" / "run.toml").read_text()
    capsys.readouterr()
    assert main(["train", *QUICK, *options, "--out", str(tmp_path / "one")]) == 0
    assert "finished already; nothing to do" in capsys.readouterr().out
    assert main(["runs", str(tmp_path)]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 1 + 2
    assert all("finished" in line and "1/1" in line for line in listed[1:])


def test_an_option_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('data = "digits"\nsubset = 150\nepochs = 1\nblocks = 2\nthreads = 1\n')
    assert main(["train", "--config", str(tmp_path / "run.toml"), "--blocks", "3", "--out", str(tmp_path / "r")]) == 0
    assert spec_from_toml((tmp_path / "r" / "run.toml").read_text(), "").blocks == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "the following arguments are required: --out"),
        (["train", "--out", "{}", "--data", "cifar11"], "must be one of digits, mnist"),
        (["train", "--out", "{}", "--model", "lenet5", "--data", "digits"], "Did you mean 'lenet4'"),
        (["train", "--out", "{}", "--method", "bscs", "--data", "digits"], "Did you mean 'bcsc'"),
        (["train", "--out", "{}", "--optimizer", "adamx", "--data", "digits"], "Did you mean 'adam"),
        (["train", "--out", "{}", "--optimizer", "lbfgs", "--data", "digits"], "LBFGS cannot be the base"),
        (
            ["train", "--out", "{}", "--optimizer-options", "nestrov=true", "--data", "digits"],
            "must be one of lr, .*got 'nestrov'. Did you mean 'nesterov'",
        ),
        (["train", "--out", "{}", "--optimizer-options", "nesterov", "--data", "digits"], "expected KEY=VALUE"),
        (["train", "--out", "{}", "--blocks", "many"], "invalid int value: 'many'"),
        (["train", "--out", "{}", "--blocks", "99999999", "--data", "digits"], "is more than the 51902 trainable"),
        (["train", "--out", "{}", "--device", "gpu", "--data", "digits"], "device 'gpu' cannot be used here"),
        (["train", "--out", "{}", "--device", "cuda", "--data", "digits"], "device 'cuda' cannot be used here"),
        (["train", "--out", "{}", "--outliers", "symetric:0.1", "--data", "digits"], "Did you mean 'symmetric'"),
        (["train", "--out", "{}", "--subset", "5000", "--data", "digits"], "subset must be from 1 to the 1437"),
        (["train", "--out", "{}", "--dropout", "0.1", "--model", "vgg19", "--data", "digits"], "no dropout"),
        (["train", "--out", "{}", "--config", "no-such-file.toml"], "cannot be read"),
        (["train", "--out", "{}", "--checkpoint-every", "0", *QUICK], "at least 1, got 0"),
        (["train", "--out", "", *QUICK], "the name of the folder is empty"),
        (["train", "--out", "{}" + 300 * "x", *QUICK], "File name too long"),
        (["train", "--out", "{}", "--lr", "1e308", *QUICK], "lr must be a number"),
        (["train", "--out", "{}", "--optimizer", "Adam", "--optimizer-options", "capturable=true", *QUICK], "refuses"),
        (["train", "--out", "{}", "--optimizer", "adam", "--optimizer-options", "betas=[0.9]", *QUICK], "refuses"),
        (["train", "--out", "{}", "--optimizer-options", 'dampening="a"', *QUICK], "refuses"),
        (["train", "--out", "{}", "--optimizer-options", "dampening=null", *QUICK], "dampening must be"),
        (["train", "--out", "{}", "--optimizer-options", "nesterov=maybe", *QUICK], "nesterov must be true or false"),
        (["train", "--out", "{}", "--optimizer-options", "foreach=False", *QUICK], "expected true, false or null for"),
        (["train", "--out", "{}", "--optimizer-options", "eps=1", "eps=2", *QUICK], "has eps more than once"),
        (["train", "--out", "{}", "--device", "hpu", *QUICK], "cannot be used here"),
        (["train", "--out", "{}", "--optimizer-options", "differentiable=true", *QUICK], "putting values back outside"),
        (["runs", "no-such-folder"], "is not a folder"),
        (["tran"], "invalid choice: 'tran'"),
        ([], "required: COMMAND"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    import re

    folder = tmp_path / "run"
    assert main([argument.format(folder) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error)
    assert not folder.exists()


def test_divergence_is_exit_code_3_now_and_when_asked_again(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["train", *QUICK, "--lr", "1e29", "--out", str(tmp_path)]
    for _ in range(2):
        assert main(arguments) == 3
        assert "The loss is" in capsys.readouterr().err
    assert json.loads((tmp_path / "summary.json").read_text())["state"] == "diverged"


fuzzed_options = st.fixed_dictionaries(
    {},
    optional={
        "--data": st.sampled_from(["digits", "digit", "mnist ", ""]),
        "--model": st.sampled_from(["lenet4", "LeNet4", "resnet", ""]),
        "--method": st.sampled_from(["sgd", "bcd", "sbc", "rbc", "bcsc", "adam"]),
        "--blocks": st.sampled_from(["1", "2", "7", "0", "-3", "1e3", "x", "10000000"]),
        "--batch-size": st.sampled_from(["1", "64", "1000", "0", "2.5"]),
        "--optimizer": st.sampled_from(["sgd", "SGD", "adam", "rprop", "sparseadam", "muon", "adafactor", "x"]),
        "--optimizer-options": st.sampled_from(
            ["nesterov=true", "betas=[0.9]", "eps=1", "eps=null", "foreach=NaN", "a=b", "=", "capturable=true", "lr=1"]
        ),
        "--lr": st.sampled_from(["0.01", "0", "-1", "nan", "inf", "1e40", "1e308"]) | st.floats().map(str),
        "--threads": st.sampled_from(["1", "0", "99999999999", "x"]),
        "--device": st.sampled_from(["cpu", "cuda", "mps", "gpu", "cpu:7", ""]),
        "--checkpoint-every": st.sampled_from(["1", "0", "-1", "x"]),
        "--momentum": st.sampled_from(["0", "0.9", "1", "-1"]),
        "--mask": st.sampled_from(["update", "gradient", "all", "none"]),
        "--granularity": st.sampled_from(["element", "row", "tensor", "column"]),
        "--outliers": st.sampled_from(
            ["symmetric:0.3", "symmetric:2", "symmetric", "human:a:b", "pairflip:0.1", ":", ""]
        ),
        "--dropout": st.sampled_from(["0.1", "1", "-0.1"]),
        "--schedule": st.sampled_from(["cosine", "constant", "linear"]),
        "--seed": st.sampled_from(["0", "123456789012345678901234567890", "-1"]),
        "--precision": st.sampled_from(["fp32", "bf16", "fp16"]),
        "--subset": st.sampled_from(["1", "3", "100", "9999"]),
    },
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=fuzzed_options)
def test_fuzzed_options_give_a_run_or_one_line(tmp_path_factory, capsys, options: dict[str, str]) -> None:
    given = {"--data": "digits", "--subset": "60", "--epochs": "1", "--threads": "1", **options}
    out = tmp_path_factory.mktemp("fuzz") / "run"
    code = main(["train", *[f"{name}={value}" for name, value in given.items()], f"--out={out}"])
    error = capsys.readouterr().err
    assert code in (0, 2, 3)
    assert error.count("\n") == (0 if code == 0 else 1)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from(["data", "epochs", "blocks", "lr", "mask", "compile", "optimizer_options", "subset", "colour"]),
        st.sampled_from(['"digits"', "1", "2.5", "true", "[1]", "{ a = 1 }", '"update"', "1979-05-27", "nonsense"]),
        max_size=3,
    )
)
def test_fuzzed_files_give_a_run_or_one_line(tmp_path_factory, capsys, lines: dict[str, str]) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "run.toml").write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))
    quick = ["--data=digits", "--epochs=1", "--threads=1", "--subset=60", "--no-compile"]
    code = main(["train", f"--config={folder / 'run.toml'}", *quick, f"--out={folder / 'run'}"])
    error = capsys.readouterr().err
    assert code in (0, 2, 3)
    assert error.count("\n") == (0 if code == 0 else 1)


@pytest.mark.parametrize(("words", "code"), [(["runs", "."], 141), (["train", "--help"], 0)])
def test_a_reader_that_leaves_is_no_traceback(tmp_path: Path, words: list[str], code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "bcsc", *words]
    ran = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (code, b"")


@pytest.mark.slow
def test_tensorboard_events_are_written_once_also_by_who_goes_on(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from bcsc.runs.watch import EventLog;"
        "from bcsc.training.history import EpochRow;"
        "rows = [EpochRow(n, 0.1, 1.5, 0.25, 1.25, 62.5, 4000, 30.0, 1234.5) for n in (1, 2, 3)];"
        "log = EventLog(Path(sys.argv[1])); log.write(rows[:1]); log.write(rows[:2]);"
        "again = EventLog(Path(sys.argv[1])); again.write(rows[:2]); again.write(rows)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    assert accuracies_by_epoch(tmp_path) == "[1, 2, 3]"


@pytest.mark.slow
def test_tensorboard_events_are_written(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "bcsc", "train", *QUICK, "--tensorboard", "--out", str(tmp_path)], check=True)
    assert accuracies_by_epoch(tmp_path) == "[1]"


def accuracies_by_epoch(folder: Path) -> str:
    """The epochs of which TensorBoard shows an accuracy, in a process of its own, as it warns of itself."""
    reader = (
        "import sys; from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E;"
        "e = E(sys.argv[1]).Reload(); print([s.step for s in e.Scalars('test_accuracy')])"
    )
    read = subprocess.run(
        [sys.executable, "-c", reader, str(folder / "tensorboard")], capture_output=True, text=True, check=True
    )
    return read.stdout.strip()


def interrupted_amid_imports(reached: list[str]) -> None:
    with interrupts_held():
        os.kill(os.getpid(), signal.SIGINT)
        reached.append("the end of the imports")


def test_a_ctrl_c_amid_the_imports_waits_for_their_end() -> None:
    reached: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="^$"):
        interrupted_amid_imports(reached)
    assert reached
    assert signal.getsignal(signal.SIGINT) is before
    with interrupts_held():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_nothing_is_held() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: interrupts_held().__enter__()).result()
    assert signal.getsignal(signal.SIGINT) is before
