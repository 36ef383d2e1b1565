"""Mistakes in a plan, each named by its line and key."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bcsc.errors import BcscError, InvalidArgumentError

Place = tuple[str | int, ...]  # a key; or a table, which one of that name (from 0), and a key in it


class MisplacedError(InvalidArgumentError):
    """A mistake, and its place in the plan."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


@contextmanager
def at(*place: str | int) -> Iterator[None]:
    """Say of a mistake made inside where it is; the innermost place counts."""
    try:
        yield
    except MisplacedError:
        raise
    except BcscError as error:
        raise MisplacedError(place, str(error)) from error


@contextmanager
def named_by_line(text: str, where: str) -> Iterator[None]:
    """Say of a misplaced mistake in which line of the plan it is."""
    try:
        yield
    except MisplacedError as mistake:
        words = " ".join(str(part + 1) if isinstance(part, int) else part for part in mistake.place)
        raise InvalidArgumentError(f"{where}, line {line_of(text, mistake.place)} ({words}): {mistake}") from mistake


def line_of(text: str, place: Place) -> int:
    """The line of a place in a plan, or where its table begins if the key is not found."""
    table, index, key = str(place[0]), place[1] if len(place) > 2 else 0, str(place[-1])
    start, seen, inside = 1, -1, len(place) == 1
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\[?\s*([\w-]+)\s*\]", line):
            seen += header[1] == table
            inside = header[1] == table and seen == index
            start = number if inside else start
        elif inside and re.match(rf'\s*"?{re.escape(key)}"?\s*=', line):
            return number
        elif len(place) > 1 and re.match(rf"\s*{re.escape(table)}\s*=", line):
            start = number  # an inline table
    return start
