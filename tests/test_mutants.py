"""What ``make mutants`` stands on: mutants left out have a reason, and code written otherwise does the same."""

import libcst as cst
import pytest

from tests.mutants import EQUIVALENT, ROOT, DecoratorsAsCalls, equivalents

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
