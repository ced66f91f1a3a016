"""Words of a command line that are numbers, as the `convert` of an argument or an option."""

from __future__ import annotations

import re
from collections.abc import Callable

from meshrt.errors import UsageError

__all__ = ["duration", "number", "pid", "port", "seconds"]

_YEAR = 86400 * 365


def number(what: str, least: int | None = 0) -> Callable[[str], int]:
    """Return the function that converts a word to an integer of at most 9 digits.

    Args:
        what: Names the number in the error: ``"lines"``.
        least: The smallest number; None: there is none.
    """

    def convert(word: str) -> int:
        if not re.fullmatch(r"-?\d{1,9}", word, re.ASCII) or (least is not None and int(word) < least):
            expected = "" if least is None else f"; expected {least} or more"
            raise UsageError(f"{word!r} is not a valid number of {what}{expected}")
        return int(word)

    return convert


def pid(word: str) -> int:
    """Return a word as the number of a process. Raises UsageError."""
    if not re.fullmatch(r"[1-9]\d{0,8}", word, re.ASCII):
        raise UsageError(f"{word!r} is not a PID, the number of a process")
    return int(word)


def port(word: str) -> int:
    """Return a word as the number of a TCP port; 0: any. Raises UsageError."""
    if not re.fullmatch(r"\d{1,5}", word, re.ASCII) or int(word) > 65535:
        raise UsageError(f"{word!r} is not a valid port: a number from 0 to 65535")
    return int(word)


def seconds(word: str) -> float:
    """Return a word as a number of seconds, from 0 to one year. Raises UsageError."""
    if not re.fullmatch(r"\d{1,9}(\.\d{0,9})?|\.\d{1,9}", word, re.ASCII) or float(word) > _YEAR:
        raise UsageError(f"{word!r} is not a valid number of seconds")
    return float(word)


def duration(word: str) -> float:
    """Return a word as a number of seconds above 0 and up to one year. Raises UsageError."""
    try:
        if found := seconds(word):
            return found
    except UsageError:
        pass
    raise UsageError(f"{word!r} is not a valid number of seconds above 0")
