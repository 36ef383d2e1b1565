"""Changes the code that is trusted most in small ways, and counts how many of the changes a test notices.

``make mutants`` has mutmut make the mutants, in a copy under ``build/mutants``, and ``under_mutmut`` try them. It works
on a random sample of each module's mutants, stops where it is stopped, and goes on from there: what a test has killed
stays killed until its function changes. The score is a record, ``benchmarks/mutants/score.json``; beside it
``equivalent.toml`` names the mutants that no test can tell from the code, and why.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import libcst as cst
from mutmut.mutation.diff_apply import get_diff_for_mutant

from bcsc.origin import now, source_commit

ROOT = Path(__file__).parents[1]
WORKSHOP = ROOT / "build" / "mutants"
RECORD = ROOT / "benchmarks" / "mutants" / "score.json"
EQUIVALENT = ROOT / "benchmarks" / "mutants" / "equivalent.toml"
FOLDERS = ("src", "tests", "benchmarks", "records")  # what the tests need
SEED = "bcsc 2"  # of the samples, together with the module's name; another one gives mutants that no law has seen
STATUS = {0: "survived", 1: "killed", 3: "killed", 24: "timeout", 36: "timeout", 152: "timeout", 255: "timeout"}
STATUS |= {-24: "timeout", -11: "killed", -9: "timeout", -6: "killed", 33: "no tests", 5: "no tests", None: "not tried"}
NOTICED = ("killed", "timeout")
MAKE_MUTANTS = """
from mutmut import __main__ as mutmut
mutmut.set_mutant_under_test("mutant_generation")
mutmut.copy_src_dir(), mutmut.copy_also_copy_files(), mutmut.setup_source_paths()
mutmut.create_mutants({children})
"""


class DecoratorsAsCalls(cst.CSTTransformer):
    """Writes ``@d`` over ``def f`` as ``f = d(f)`` below it, since mutmut leaves decorated functions alone."""

    def leave_FunctionDef(  # noqa: N802 -- libcst's name
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.FlattenSentinel[cst.BaseStatement]:
        name = updated_node.name
        decorated: cst.BaseExpression = name
        for decorator in reversed(updated_node.decorators):
            decorated = cst.Call(decorator.decorator, [cst.Arg(decorated)])
        if decorated is name or decorated.func.deep_equals(cst.Name("classmethod")):
            return updated_node
        call = cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(name)], decorated)])
        return cst.FlattenSentinel([updated_node.with_changes(decorators=[]), call])


def settings() -> dict:
    """The part of pyproject.toml that mutmut reads."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]


def modules() -> list[Path]:
    """The files that are put to the test, relative to the project."""
    options = settings()
    spared = {path for pattern in options["do_not_mutate"] for path in ROOT.glob(pattern)}
    found = {path for pattern in options["only_mutate"] for path in ROOT.glob(pattern)}
    return sorted(path.relative_to(ROOT) for path in found - spared)


def set_up(children: int) -> None:
    """Copy what is tested and its tests, and make the mutants; a file that has not changed keeps its results."""
    mutated = set(modules())
    files = set(tracked_files())
    for copy in [path for folder in FOLDERS for path in (WORKSHOP / folder).rglob("*") if path.is_file()]:
        if copy.relative_to(WORKSHOP) not in files:
            copy.unlink()
            (WORKSHOP / "mutants" / copy.relative_to(WORKSHOP)).unlink(missing_ok=True)
    for path in sorted(files):
        content = (ROOT / path).read_bytes()
        if path in mutated:
            content = cst.parse_module(content).visit(DecoratorsAsCalls()).bytes
        copy = WORKSHOP / path
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)
    in_workshop(WORKSHOP, "-c", MAKE_MUTANTS.format(children=children))


def tracked_files() -> Iterator[Path]:
    """The files that the tests need."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS, "pyproject.toml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return (Path(line) for line in listed.stdout.splitlines() if (ROOT / line).exists())


def in_workshop(folder: Path, *arguments: str, **more: str) -> None:
    """Run Python on the copy."""
    mutated = WORKSHOP / "mutants" / "src"
    mutated.mkdir(parents=True, exist_ok=True)  # Python looks once, when it starts, whether it is there
    environment = {"PYTHONPATH": f"{mutated}:.", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, *arguments]
    ended = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit("\n".join(["This has failed:", *(ended.stdout + ended.stderr).splitlines()[-40:]]))


def results(module: Path) -> dict[str, str]:
    """The mutants of a module, and what has become of each."""
    path = WORKSHOP / "mutants" / f"{module}.meta"
    codes = json.loads(path.read_text())["exit_code_by_key"] if path.exists() else {}
    return {name: STATUS.get(code, "suspicious") for name, code in codes.items()}


def sample(module: Path, size: int) -> list[str]:
    """Some mutants of a module, always the same; a larger sample has a smaller one in it."""
    names = sorted(results(module))
    random.Random(f"{SEED} {module}").shuffle(names)
    return names[:size]


def change_of(module: Path, name: str) -> dict[str, str]:
    """The function of a mutant, its line that is changed, and what that becomes."""
    with chdir(WORKSHOP):
        diff = get_diff_for_mutant(name, path=module)
    lines = [line for line in diff.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]
    was, becomes = ([line[1:].strip() for line in lines if line[0] == sign] for sign in "-+")
    function = re.sub(r"__mutmut_\d+$", "", name).replace("xǁ", "").replace("ǁ", ".").replace(".x_", ".")
    return {"function": function, "was": " ".join(was), "becomes": " ".join(becomes)}


def equivalents() -> list[dict[str, str]]:
    """The mutants that no test can tell from the code."""
    return tomllib.loads(EQUIVALENT.read_text())["mutant"]


def run(wanted: Sequence[Path], size: int, children: int) -> None:
    """Try the mutants of the samples that no test has noticed yet, those of a module one after the other."""
    left = [[name for name in sample(module, size) if is_open(module, name)] for module in wanted]
    shares = [list(chain.from_iterable(left[child::children])) for child in range(children)]
    if children > 1:
        try_mutants("none", [])  # so that what each test reaches is found out once
    with ThreadPoolExecutor(children) as pool:
        list(pool.map(try_mutants, map(str, range(children)), shares))


def is_open(module: Path, name: str) -> bool:
    """Whether a mutant has yet to be noticed, if it can be."""
    return results(module)[name] not in NOTICED and not is_equivalent(change_of(module, name))


def is_equivalent(change: dict[str, str]) -> bool:
    """Whether the list has it."""
    return any(change.items() <= entry.items() for entry in equivalents())


def try_mutants(share: str, names: Sequence[str]) -> None:
    """Let the tests notice mutants, or not."""
    wanted, options = WORKSHOP / f"wanted-{share}.txt", settings()
    wanted.write_text("\n".join(names))
    plugin = ["-m", "pytest", "-q", "-p", "tests.under_mutmut"]
    arguments = [*options["pytest_add_cli_args"], *options["pytest_add_cli_args_test_selection"]]
    in_workshop(WORKSHOP / "mutants", *plugin, *arguments, BCSC_MUTANTS=str(wanted))


def score(module: Path, size: int) -> dict:
    """How many of a sample were noticed; survivors that are not known to be equivalent are named."""
    known, chosen = results(module), sample(module, size)
    others = {name: change_of(module, name) for name in chosen if known[name] not in NOTICED}
    same = {name for name, change in others.items() if is_equivalent(change)}
    noticed, counted = len(chosen) - len(others), len(chosen) - len(same)
    return {
        "mutants": len(known),
        "sample": len(chosen),
        **Counter(known[name] for name in chosen if name not in same),
        "equivalent": len(same),
        "percent": round(100 * noticed / counted, 1) if counted else None,  # there may be nothing that could be changed
        "unnoticed": [{**change, "status": known[name]} for name, change in others.items() if name not in same],
    }


def main() -> None:
    """Try the mutants of all modules, or of those named, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=30, help="mutants of each module (default: 30)")
    parser.add_argument("--children", type=int, default=os.cpu_count(), help="at once (default: one per core)")
    parser.add_argument("modules", nargs="*", help="parts of paths of modules (default: all)")
    arguments = parser.parse_args()
    set_up(arguments.children)
    wanted = [path for path in modules() if not arguments.modules or any(x in str(path) for x in arguments.modules)]
    run(wanted, arguments.sample, arguments.children)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"modules": {}}
    for module in wanted:
        found = score(module, arguments.sample)
        record["modules"][str(module)] = {**found, "commit": source_commit(), "date": now()}
        print(f"{found['percent']} % of {found['sample'] - found['equivalent']} mutants of {module} noticed")
    about = {"tool": f"mutmut {version('mutmut')}", "seed": SEED}
    RECORD.write_text(json.dumps({**about, "modules": dict(sorted(record["modules"].items()))}, indent=1) + "\n")


if __name__ == "__main__":
    main()
