"""Where bfloat16 fails it is made to work in time, or one line says what to set; whoever does not ask pays nothing."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import bcsc
from bcsc.cli import main
from bcsc.training import precision
from bcsc.training.precision import BEFORE_AMX, VARIABLE, PrecisionError, find_limit, make_bfloat16_work

# Ways in which a CPU without the instructions it announces ends the child.
FAILURES = {
    "signal": "os.kill(os.getpid(), signal.SIGILL)",
    "error": "sys.exit('could not create a primitive')",
    "no text": r"sys.stderr.buffer.write(b'\xff\xfe no words\n'); sys.exit(1)",
    "hang": "time.sleep(60)",
}
REASONS = {
    "signal": "ended by SIGILL",
    "error": "could not create a primitive",
    "no text": "\ufffd\ufffd no words",
    "hang": "no answer in 2 seconds",
}
IMPORTS = "import os, signal, sys, time; open(os.environ['ASKED'], 'a').write('.')"


def probe(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", f"{IMPORTS}\n{code}")


def helped_by_limit(failure: str) -> tuple[str, ...]:
    return probe(f"if os.environ.get('{VARIABLE}') != '{BEFORE_AMX}':\n    {FAILURES[failure]}")


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no variable set, and a file with a letter for every child that was asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(precision, "PROBE_SECONDS", 2)
    (tmp_path / "asked").touch()
    return tmp_path / "asked"


@pytest.mark.parametrize("failure", FAILURES)
def test_a_cpu_that_fails_is_limited_before_torch_is_loaded_and_the_answer_kept(asked, monkeypatch, failure) -> None:
    monkeypatch.setattr(precision, "PROBE", helped_by_limit(failure))
    monkeypatch.delitem(sys.modules, "torch")
    for _ in range(2):
        make_bfloat16_work()
        assert os.environ[VARIABLE] == BEFORE_AMX
        monkeypatch.delenv(VARIABLE)
    assert asked.read_text() == ".."  # without the limit and with it, once each


@pytest.mark.parametrize("failure", FAILURES)
def test_where_torch_is_loaded_one_line_says_what_to_set(asked, monkeypatch, failure) -> None:
    monkeypatch.setattr(precision, "PROBE", helped_by_limit(failure))
    for _ in range(2):
        with pytest.raises(PrecisionError, match=f"unless {VARIABLE}={BEFORE_AMX} is set before torch is loaded"):
            make_bfloat16_work()
    assert VARIABLE not in os.environ
    assert asked.read_text() == ".."


@pytest.mark.parametrize("failure", FAILURES)
def test_where_nothing_helps_the_reason_is_given_and_asked_for_again(asked, monkeypatch, failure) -> None:
    monkeypatch.setattr(precision, "PROBE", probe(FAILURES[failure]))
    with pytest.raises(PrecisionError, match=rf"does not work on this CPU \({REASONS[failure]}\). Take precision fp32"):
        make_bfloat16_work()
    monkeypatch.setattr(precision, "PROBE", probe(""))
    make_bfloat16_work()
    assert asked.read_text() == "..."


def test_a_cpu_that_works_is_left_alone_and_asked_once(asked, monkeypatch) -> None:
    monkeypatch.setattr(precision, "PROBE", probe(""))
    make_bfloat16_work()
    make_bfloat16_work()
    assert VARIABLE not in os.environ
    assert asked.read_text() == "."


def test_who_has_set_the_variable_is_not_asked(asked, monkeypatch) -> None:
    monkeypatch.setenv(VARIABLE, "AVX2")
    monkeypatch.setattr(precision, "PROBE", probe(FAILURES["error"]))
    make_bfloat16_work()
    assert asked.read_text() == ""
    assert os.environ[VARIABLE] == "AVX2"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b'{"limit": "AMX"}', b'{"limit": []}', b"\xff", b"[" * 10**5]
)
def test_a_memory_that_cannot_be_read_is_asked_for_again(asked, monkeypatch, content) -> None:
    monkeypatch.setattr(precision, "PROBE", probe(""))
    precision.memory_file().parent.mkdir(parents=True)
    precision.memory_file().write_bytes(content)
    make_bfloat16_work()
    assert asked.read_text() == "."
    assert json.loads(precision.memory_file().read_bytes())["limit"] == ""


def test_a_cache_that_cannot_be_written_is_no_obstacle(asked, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(precision, "PROBE", probe(""))
    make_bfloat16_work()
    make_bfloat16_work()
    assert asked.read_text() == ".."


@pytest.mark.parametrize("changed", ["cpu", "system", "torch"])
def test_another_cpu_system_or_torch_is_asked_anew(asked, monkeypatch, changed) -> None:
    monkeypatch.setattr(precision, "PROBE", probe(""))
    make_bfloat16_work()
    other = {**precision.machine(), changed: "another"}
    monkeypatch.setattr(precision, "machine", lambda: other)
    make_bfloat16_work()
    assert asked.read_text() == ".."


def test_the_cpu_is_known_by_its_flags_on_linux() -> None:
    if Path("/proc/cpuinfo").exists():
        flags = next(
            line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("flags", "Fea"))
        )
        assert flags in precision.machine()["cpu"]
    assert torch.__version__.startswith(precision.machine()["torch"])


SPEC = {"data": "digits", "subset": 60, "epochs": 1, "threads": 1, "blocks": 2}


def test_the_library_and_the_command_refuse_in_one_line_before_anything_is_written(
    asked, monkeypatch, tmp_path, capsys
) -> None:
    monkeypatch.setattr(precision, "PROBE", helped_by_limit("signal"))
    with pytest.raises(PrecisionError, match=VARIABLE):
        bcsc.run(bcsc.RunSpec(**SPEC, precision="bf16"), tmp_path / "run")
    images = [(torch.ones(3), 0)] * 4
    with pytest.raises(PrecisionError, match=VARIABLE):
        bcsc.train(torch.nn.Linear(3, 2), images, images, out=tmp_path / "run", precision="bf16", blocks=2, epochs=1)
    options = [f"--{name}={value}" for name, value in SPEC.items()]
    assert main(["train", *options, "--precision=bf16", f"--out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert VARIABLE in error
    assert not (tmp_path / "run").exists()


COMMAND_ON_A_BROKEN_CPU = """
import json, os, sys
from bcsc.training import precision
precision.PROBE = json.loads(sys.argv[1])
from bcsc.cli import main
code = main(sys.argv[2:])
print(os.environ.get(precision.VARIABLE))
sys.exit(code)
"""


@pytest.mark.slow
def test_the_command_sets_the_limit_in_time_and_trains(asked, tmp_path) -> None:
    words = [json.dumps(helped_by_limit("signal")), "train", *(f"--{name}={value}" for name, value in SPEC.items())]
    words += ["--precision=bf16", f"--out={tmp_path / 'run'}"]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND_ON_A_BROKEN_CPU, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == BEFORE_AMX
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "finished"


def test_float32_asks_nobody_and_loads_nothing_for_it(asked, tmp_path) -> None:
    command = (
        "import sys, bcsc\n"
        f"bcsc.run(bcsc.RunSpec(**{SPEC}), {str(tmp_path / 'run')!r})\n"
        "assert 'bcsc.training.precision' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", command], check=True)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("limit", ["", BEFORE_AMX])
def test_the_tests_themselves_are_limited_before_torch_is_loaded(asked, limit) -> None:
    precision.remember(limit)
    command = (
        f"import tests.conftest, os; print(os.environ.get('{VARIABLE}', ''), 'torch' in __import__('sys').modules)"
    )
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*([limit] if limit else []), "True"]


@pytest.mark.slow
def test_the_probe_trains_in_bfloat16_here_or_under_the_limit(asked, monkeypatch) -> None:
    monkeypatch.setattr(precision, "PROBE_SECONDS", 120)
    assert find_limit() in ("", BEFORE_AMX)


def test_the_probe_runs_in_bfloat16(monkeypatch) -> None:
    seen = []
    build = bcsc.models.build

    def watched(name: str, **options):
        network = build(name, **options)
        network.register_forward_hook(lambda _module, _inputs, scores: seen.append((name, scores.dtype)))
        return network

    monkeypatch.setattr(bcsc.models, "build", watched)
    precision.try_bfloat16()
    assert seen == [(name, torch.bfloat16) for name in precision.PROBED_NETWORKS]


def test_a_cpu_is_known_by_what_its_system_lists_or_else_by_its_name(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(precision, "Path", lambda _: tmp_path / "cpuinfo")
    assert precision.machine()["cpu"] == platform.processor()
    listed = ["model name\t: A CPU", "flags\t\t: amx_bf16", "Features\t: asimd"]
    (tmp_path / "cpuinfo").write_text("\n".join(["processor\t: 0", *listed, "processor\t: 1", *listed]))
    assert precision.machine()["cpu"] == "\n".join(listed)


def test_the_probe_finds_what_this_process_finds(tmp_path, monkeypatch) -> None:
    (tmp_path / "found_here_alone.py").touch()
    monkeypatch.setattr(precision, "PROBE", (sys.executable, "-c", "import found_here_alone"))
    assert "No module named 'found_here_alone'" in precision.failure_of_probe({})
    monkeypatch.syspath_prepend(tmp_path)
    assert precision.failure_of_probe({}) is None
