"""What a claim says of the arms of an experiment, in one of three sentences."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from bcsc.choices import Period
from bcsc.errors import InvalidArgumentError

Side = Literal["above", "below"]


@dataclass(frozen=True, kw_only=True)
class Saying:
    """One thing that a claim says of arms, which are named by their labels, with ``{M}`` or filled in.

    over: each is more accurate than all the others, M for M. rises: the accuracy rises with M. falls: from the first
    condition to the second it falls by a number of points that lies above or below a bound.
    """

    kind: Literal["over", "rises", "falls"]
    arms: tuple[str, ...]
    periods: tuple[Period, ...]
    others: tuple[str, ...] = ()
    conditions: tuple[str, str] = ("", "")
    side: Side = "above"
    bound: float = 0.0


@dataclass(frozen=True)
class PlannedClaim:
    """What an experiment is to decide: all that is said must hold. Plans of one package may share a claim by name."""

    name: str
    statement: str
    source: str
    sayings: tuple[Saying, ...]


def read_saying(sentence: object, arms: Collection[str], periods: Collection[Period]) -> Saying:
    """One of the sentences that a claim may consist of."""
    text = sentence if isinstance(sentence, str) else ""
    some: tuple[Period, ...] = tuple(periods) or ("all",)
    if (falls := re.fullmatch(r"(.+) falls by (less|more) than (\d+(?:\.\d+)?) points?", text)) and falls[1] in arms:
        side: Side = "below" if falls[2] == "less" else "above"
        return Saying(kind="falls", arms=(falls[1],), periods=some, side=side, bound=float(falls[3]))
    if (rises := re.fullmatch(r"(.+) rises? with M", text)) and (risers := _arms_in(rises[1], arms)):
        return Saying(kind="rises", arms=risers, periods=some)
    for over in re.finditer(" over ", text):
        better, others = _arms_in(text[: over.start()], arms), _arms_in(text[over.end() :], arms)
        if both := set(better) & set(others):
            raise InvalidArgumentError(f"A claim compares different arms, got {min(both)!r} over itself.")
        if better and others:
            return Saying(kind="over", arms=better, others=others, periods=tuple(periods) or ("all", "final"))
    raise InvalidArgumentError(
        "A claim says 'A over B', 'A rises with M', or 'A falls by less (or more) than 1 point', where A and B are "
        f"arms ({'; '.join(arms)}) or several of them with 'and' between, got {sentence!r}."
    )


def _arms_in(text: str, arms: Collection[str]) -> tuple[str, ...]:
    """The arms that a text with 'and' between names; none if it names anything else."""
    if text in arms:
        return (text,)
    for word in re.finditer(" and ", text):
        if text[: word.start()] in arms and (others := _arms_in(text[word.end() :], arms)):
            return (text[: word.start()], *others)
    return ()
