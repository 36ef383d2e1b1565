"""What ``make mutants`` has found, and what it stands on: mutants left out have a reason."""

import ast
import json

import libcst as cst
import pytest

from tests.mutants import EQUIVALENT, NOTICED, RECORD, ROOT, DecoratorsAsCalls, equivalents, modules

GOAL = 90  # percent of the mutants that are not equivalent
SAMPLE = 30  # mutants of each module, or all where there are fewer

CODE = """
class Box:
    @property
    def half(self):
        return self.whole / 2

    @classmethod
    def of(cls, whole):
        box = cls()
        box.whole = whole
        return box

@twice
@plus(1)
def answer(x):
    return 10 * x
"""


@pytest.mark.parametrize("entry", equivalents(), ids=lambda entry: entry["function"])
def test_a_mutant_that_no_test_can_notice_is_of_the_present_code_and_has_a_reason(entry: dict[str, str]) -> None:
    assert EQUIVALENT.exists()
    paths = [ROOT / "src" / f"{'/'.join(entry['function'].split('.')[:depth])}.py" for depth in range(2, 6)]
    source = " ".join("".join(path.read_text() for path in paths if path.exists()).split())
    assert " ".join(entry["was"].split()) in source
    assert len(entry["why"].split()) > 3


def test_decorators_written_as_calls_do_the_same() -> None:
    written = cst.parse_module(CODE).visit(DecoratorsAsCalls()).code
    assert written.count("@") == 1  # a class method, with which mutmut can deal
    space = {"twice": lambda f: lambda x: 2 * f(x), "plus": lambda n: lambda f: lambda x: f(x) + n}
    exec(written, space)
    assert (space["answer"](3), space["Box"].of(7).half) == (62, 3.5)


def test_the_record_has_every_module_at_a_commit() -> None:
    recorded = json.loads(RECORD.read_text())["modules"]
    assert set(recorded) == {str(module) for module in modules()}
    assert all(len(entry["commit"].removesuffix("-dirty")) == 40 for entry in recorded.values())


@pytest.mark.parametrize("module", modules(), ids=str)
def test_of_every_module_nine_mutants_in_ten_are_noticed(module) -> None:
    entry = json.loads(RECORD.read_text())["modules"][str(module)]
    counted = entry["sample"] - entry["equivalent"]
    assert sum(entry.get(status, 0) for status in NOTICED) + len(entry["unnoticed"]) == counted
    assert len(entry["unnoticed"]) * 100 <= (100 - GOAL) * counted
    assert entry["sample"] >= min(entry["mutants"], SAMPLE)
    assert counted or not has_code(module)


def has_code(module) -> bool:
    """Whether a function does more than give back what it was given."""
    functions = [node for node in ast.walk(ast.parse((ROOT / module).read_text())) if isinstance(node, ast.FunctionDef)]
    statements = [statement for function in functions for statement in function.body]
    return not all(isinstance(getattr(statement, "value", None), ast.Constant | ast.Name) for statement in statements)
