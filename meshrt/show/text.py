"""Texts that fit: how wide one is on a terminal, cutting it to a width, breaking it, and durations. Pure."""

from __future__ import annotations

import re
import time
import unicodedata

__all__ = ["broken", "cut", "since", "width_of", "wrapped"]

_DOTS = "..."
#: A word, and the blanks before it.
_WORDS = re.compile(r"(\s*)(\S+)")


def width_of(text: str) -> int:
    """Return the number of terminal columns of ``text``: a wide character takes two, a combining one none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, most: int, *, begin: bool = False) -> str:
    """Return ``text`` in at most ``most`` columns (3 or more), with dots in place of its end if it is longer.

    Args:
        begin: Cut the beginning instead: the end of a path tells more.
    """
    if width_of(text) <= most:
        return text
    room = most - len(_DOTS)
    if begin:
        return _DOTS + _fitting(text[::-1], room)[::-1]
    return _fitting(text, room) + _DOTS


def broken(text: str, columns: int | None, indent: str) -> list[str]:
    """Return a line as lines that fit, broken between words; a word that does not fit has a line of its own.

    Args:
        columns: How many columns there are; None: as many as it takes.
        indent: What the second line and later ones begin with.
    """
    if columns is None or width_of(text) <= columns:
        return [text]
    lines, now = [], ""
    for blanks, word in _WORDS.findall(text):
        if now.strip() and width_of(now + blanks + word) > columns:
            lines.append(now)
            now = indent + word
        else:
            now += blanks + word
    return [*lines, now]


def wrapped(text: str, columns: int, most: int) -> str:
    """Return ``text`` in at most ``most`` lines of at most ``columns`` columns (3 or more).

    It is broken between words, in a word that does not fit, and cut if that is not enough.
    """
    lines = []
    for line in broken(text, columns, ""):
        while width_of(line) > columns:
            lines.append(_fitting(line, columns))
            line = line[len(lines[-1]) :]
        lines.append(line)
    return "\n".join([*lines[: most - 1], cut(" ".join(lines[most - 1 :]), columns)] if len(lines) > most else lines)


def _fitting(text: str, room: int) -> str:
    """Return the longest beginning of ``text`` that takes at most ``room`` columns."""
    if text.isascii():
        return text[:room]
    used = 0
    for index, character in enumerate(text):
        used += _columns(character)
        if used > room:
            return text[:index]
    return text


def since(start: float, now: float | None = None) -> str:
    """Return how long ago ``start`` (epoch seconds) was: ``"4 s"``, ``"12 min"``."""
    seconds = max(0.0, (time.time_ns() / 1e9 if now is None else now) - start)
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
