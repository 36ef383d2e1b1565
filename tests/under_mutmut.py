"""A plugin for pytest under ``make mutants``: collects the tests once, and tries every mutant in a fork of its own.

Of each mutant the tests are run that reach its function: first those that have noticed others, then those whose file
mirrors the module, then those that take least. One that fails ends it. A mutant that is not noticed within some seconds
of work counts as unnoticed.
"""

import hashlib
import inspect
import json
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.format_utils import mangled_name_from_mutant_name

WANTED = "BCSC_MUTANTS"  # names a file with the names of the mutants to try, one per line
TESTS = Path("tests.json")  # of each test what it reaches, how long it takes, and of which text that holds
LEARNED = Path("learned.json")  # the same of one test, from a fork
SECONDS_OF_WORK = 3.0  # after which no further test is begun
PATIENCE = 10.0  # seconds of work in which a test ends, if it ends, beside five times what it takes
LIMIT_OF_WAITING = 900  # seconds, for all tests
QUICK = 1.0  # seconds of a test that is worth trying first
EXIT_CODES = {"survived": 0, "killed": 1, "timeout": 24, "no tests": 33}  # as mutmut writes them down
report_failure: Callable[[str], None] | None = None  # in a fork


class Known(NamedTuple):
    """What is known of a test."""

    seconds: float
    functions: list[str]
    text: str


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """End a fork with the first failure."""
    if report.failed and report_failure is not None:
        report_failure(report.nodeid)


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Learn what is not yet known of the tests, then try the mutants."""
    known = learned(session)
    killers: list[str] = []
    trusted: set[str] = set()
    for name in Path(os.environ[WANTED]).read_text().split():
        function = mangled_name_from_mutant_name(name)
        items = [item for item in session.items if function in known[item.nodeid].functions]
        items.sort(key=lambda item: promise(item.nodeid, name, known[item.nodeid].seconds, killers))
        status, killer = in_fork(partial(run_all, items, name, known)) if items else ("no tests", "")
        if killer and killer not in trusted:
            must_pass([item for item in items if item.nodeid == killer])
            trusted.add(killer)
        if killer and known[killer].seconds < QUICK:
            killers = [*[nodeid for nodeid in killers if nodeid != killer], killer]
        write_down(name, status)
    return True


def promise(nodeid: str, mutant: str, seconds: float, killers: list[str]) -> tuple[float, ...]:
    """By what the tests are sorted."""
    file = nodeid.partition("::")[0].removeprefix("tests/unit/").removesuffix(".py").replace("/test_", "/")
    alike = os.path.commonpath([file, "/".join(mutant.split(".")[1:-1])])
    return -killers.index(nodeid) if nodeid in killers else 1, seconds > QUICK, -len(alike), seconds


def write_down(name: str, status: str) -> None:
    """Tell what has become of a mutant, where mutmut does, which forgets it when the function changes."""
    path = Path("src", *name.rpartition(".")[0].split(".")).with_suffix(".py.meta")
    content = json.loads(path.read_text())
    content["exit_code_by_key"][name] = EXIT_CODES[status]
    path.write_text(json.dumps(content, indent=4))


def learned(session: pytest.Session) -> dict[str, Known]:
    """What is known of the tests, after those whose text is new were run as they are, each of which must pass."""
    known = {nodeid: Known(*entry) for nodeid, entry in json.loads(TESTS.read_text()).items()} if TESTS.exists() else {}
    try:
        for item in session.items:
            if item.nodeid not in known or known[item.nodeid].text != text_of(item):
                must_pass([item], learn)
                known[item.nodeid] = Known(*json.loads(LEARNED.read_text()))
    finally:
        TESTS.write_text(json.dumps(known))
    return known


def must_pass(items: list[pytest.Item], run: Callable[[list[pytest.Item]], None] | None = None) -> None:
    """Stop if a test fails that no mutant makes fail."""
    status, _ = in_fork(partial(run or partial(run_all, mutant="", known={}), items))
    if status != "survived":
        raise pytest.UsageError(f"{items[0].nodeid} fails before anything is changed ({status})")


def text_of(item: pytest.Item) -> str:
    """What stands for the text of a test."""
    return hashlib.sha256(inspect.getsource(item.function).encode()).hexdigest()


def learn(items: list[pytest.Item]) -> None:
    """Run a test as it is, and write down what it reaches."""
    state()._stats.clear()
    run_all(items, "stats", {})
    LEARNED.write_text(json.dumps([time.process_time(), sorted(state()._stats), text_of(items[0])]))


def run_all(items: list[pytest.Item], mutant: str, known: Mapping[str, Known]) -> None:
    """Run the tests with a mutant in the place of its function; the first that fails or hangs ends the process."""
    set_mutant_under_test(mutant)
    for item in items:
        if item.nodeid in known:
            end = time.process_time() + PATIENCE + 5 * known[item.nodeid].seconds
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(end), resource.RLIM_INFINITY))
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        if time.process_time() > SECONDS_OF_WORK:
            return


def in_fork(action: Callable[[], None]) -> tuple[str, str]:
    """Do something in a child of its own group, and tell how it ended: with the first failure, or without one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.alarm(LIMIT_OF_WAITING)
        end_with_failures(writing)
        try:
            action()
        except BaseException:  # of pytest itself, when a mutant gets in its way
            os._exit(1)
        os._exit(0)
    _, ended = os.waitpid(child, 0)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what the tests have started
    os.close(writing)
    with os.fdopen(reading) as pipe:
        killer = pipe.read()
    code = os.waitstatus_to_exitcode(ended)
    status = {0: "survived", -signal.SIGXCPU: "timeout", -signal.SIGALRM: "timeout", -signal.SIGKILL: "timeout"}
    return status.get(code, "killed"), killer


def end_with_failures(writing: int) -> None:
    """Let the first failure end this process, after it is told which."""
    global report_failure

    def report(nodeid: str) -> None:
        os.write(writing, nodeid.encode())
        os._exit(1)

    report_failure = report
