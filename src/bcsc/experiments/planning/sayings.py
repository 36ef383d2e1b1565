"""What a claim says of the arms of an experiment, in one of a few sentences."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from bcsc.choices import Measure, Period
from bcsc.errors import InvalidArgumentError

Side = Literal["above", "below"]

# What a claim may be about, in words.
MEASURES: Mapping[Measure, str] = {
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "train_loss": "training loss",
    "train_loss_std": "spread of the training loss",
}


@dataclass(frozen=True, kw_only=True)
class Saying:
    """One thing that a claim says of arms, which are named by their labels, with ``{M}`` or filled in.

    compares: the measure of each lies above (or below) that of all the others, M for M. slopes: the measure rises (or
    falls) with M. falls: from the first condition to the second the accuracy falls by a number of points that lies
    above or below a bound, or by more than that of the others does.
    """

    kind: Literal["compares", "slopes", "falls"]
    arms: tuple[str, ...]
    periods: tuple[Period, ...]
    others: tuple[str, ...] = ()
    conditions: tuple[str, str] = ("", "")
    side: Side = "above"
    bound: float = 0.0
    measure: Measure = "test_accuracy"

    @property
    def word(self) -> str:
        """What stands between two arms."""
        return "falls by more than" if self.kind == "falls" else "over" if self.side == "above" else "below"


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
    if (slopes := re.fullmatch(r"(.+) (rise|fall)s? with M", text)) and (sloping := _arms_in(slopes[1], arms)):
        return Saying(kind="slopes", arms=sloping, periods=some, side="above" if slopes[2] == "rise" else "below")
    for words in re.finditer(" over | below | falls? by more than ", text):
        some_arms, others = _arms_in(text[: words.start()], arms), _arms_in(text[words.end() :], arms)
        if both := set(some_arms) & set(others):
            raise InvalidArgumentError(f"A claim compares different arms, got {min(both)!r}{words[0]}itself.")
        if some_arms and others and "fall" in words[0]:
            return Saying(kind="falls", arms=some_arms, others=others, periods=some)
        if some_arms and others:
            side = "above" if words[0] == " over " else "below"
            periods = tuple(periods) or ("all", "final")
            return Saying(kind="compares", arms=some_arms, others=others, periods=periods, side=side)
    raise InvalidArgumentError(
        "A claim says 'A over B', 'A below B', 'A rises (or falls) with M', 'A falls by less (or more) than 1 point', "
        f"or 'A falls by more than B', where A and B are arms ({'; '.join(arms)}) or several of them with 'and' "
        f"between, got {sentence!r}."
    )


def _arms_in(text: str, arms: Collection[str]) -> tuple[str, ...]:
    """The arms that a text with 'and' between names; none if it names anything else."""
    if text in arms:
        return (text,)
    for word in re.finditer(" and ", text):
        if text[: word.start()] in arms and (others := _arms_in(text[word.end() :], arms)):
            return (text[: word.start()], *others)
    return ()
