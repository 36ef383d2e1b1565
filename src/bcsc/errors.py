"""What can go wrong. Every message says what was given, what was expected and what to do."""

import difflib
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any, TypeVar

Choice = TypeVar("Choice", bound=str)
LONGEST_VALUE = 200  # characters of a value in a message
LARGEST = 2**63 - 1  # no count comes near it; it fits 64 bits, and a float can still hold it


class BcscError(Exception):
    """The parent of every error that bcsc raises on purpose; on the command line it ends with ``exit_code``."""

    exit_code = 2


class InvalidArgumentError(BcscError, ValueError):
    """An argument is outside what is allowed."""


class UnsupportedOptimizerError(BcscError, TypeError):
    """This base optimizer, or the gradient it was given, cannot be stepped block by block."""


class StateMismatchError(BcscError, ValueError):
    """A saved state belongs to another set-up than the one it is loaded into."""


class DataError(BcscError, ValueError):
    """A data file is missing, damaged or not what it claims to be."""


class DamagedRunError(BcscError, ValueError):
    """A run folder cannot be read."""


class CheckpointError(BcscError, RuntimeError):
    """A checkpoint cannot be read, or belongs to something else."""


class MissingExtraError(BcscError, ImportError):
    """An optional dependency is not installed."""


class DriftWarning(UserWarning):
    """The optimizer and the sampler, or the processes of a training, no longer go together."""


class Diverged(BcscError, ArithmeticError):  # noqa: N818 -- what happened to the run, not a mistake
    """The loss is no longer finite."""

    exit_code = 3


class Interrupted(BcscError, RuntimeError):  # noqa: N818 -- likewise
    """The run was asked to stop, and has been saved."""

    exit_code = 130


def in_one_line(error: Exception | str) -> str:
    """A message for a terminal: no line breaks, and no control characters, which may stem from a file."""
    text = " ".join(str(error).split())
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def in_short(value: object) -> str:
    """Its ``repr`` for a message, cut where it is long; what may stem from a file may be too large to write down."""
    try:
        text = repr(value)
    except Exception:  # an integer of many digits, a deep nest, whatever a hostile value makes of it
        text = f"a {type(value).__name__} too large to show"
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def check_at_least(name: str, value: object, least: int) -> int:
    """``value`` as an integer of at least ``least`` that fits 64 bits; booleans and floats are not integers here."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidArgumentError(f"{name} must be a whole number of at least {least}, got {in_short(value)}.")
    if int(value) > LARGEST:
        raise InvalidArgumentError(f"{name} must be a whole number of at most {LARGEST}, got {in_short(value)}.")
    return int(value)


def check_optional(name: str, value: object, least: int) -> int | None:
    """The same of a value that may be left out."""
    return None if value is None else check_at_least(name, value, least)


def check_choice(name: str, value: object, allowed: Iterable[Choice]) -> Choice:
    """``value`` if it is one of ``allowed``; the message names them all and the closest."""
    choices = list(allowed)
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    close = difflib.get_close_matches(in_short(value).strip("'").lower(), choices, n=3)
    hint = f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    raise InvalidArgumentError(f"{name} must be one of {', '.join(choices)}, got {in_short(value)}.{hint}")


def check_same_setup(what: str, *, saved: Mapping[str, Any], current: Mapping[str, Any], others: Iterable[str]) -> None:
    """Refuse a saved state that lacks an entry, or that was written by a set-up other than the current one."""
    missing = [key for key in (*others, *current) if key not in saved]
    if missing:
        raise StateMismatchError(
            f"This is not the state of a {what}: it lacks {', '.join(missing)}. Load what {what}.state_dict() returned."
        )
    changed = [
        f"{key} was {in_short(saved[key])}, is {value!r}"
        for key, value in current.items()
        if type(saved[key]) is not type(value) or saved[key] != value
    ]
    if changed:
        raise StateMismatchError(
            f"The saved {what} was built otherwise: {'; '.join(changed)}. Build it as it was, or start a new run."
        )
