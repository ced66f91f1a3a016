"""Tokens of the selection grammar. Pure functions of a text and a position; blanks between tokens are skipped."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Token", "scan", "scan_place"]

_BLANK = re.compile(r"\s*")
_NUMBER = re.compile(r"-?[0-9]+")
_SYMBOLS = frozenset("(),:=|&!*")
# FILE:LINE, the file in double quotes (a quote inside is doubled) or without blanks, commas, operators and parentheses
_PLACE = re.compile(r"""(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<bare>[^\s,&|()"]+)):(?P<line>[0-9]+)(?![^\s,&|()])""")


class Token(NamedTuple):
    """A piece of text. ``kind`` is "number", "word", "end", "other" or, for a symbol, the symbol itself."""

    kind: str
    value: str
    start: int
    end: int


def scan(text: str, position: int) -> Token:
    """Return the token at ``position`` or behind the blanks there."""
    blank = _BLANK.match(text, position)
    start = blank.end() if blank else position
    if start >= len(text):
        return Token("end", "", len(text), len(text))
    number = _NUMBER.match(text, start)
    if number:
        return Token("number", number.group(), start, number.end())
    char = text[start]
    if char in _SYMBOLS:
        return Token(char, char, start, start + 1)
    if char.isidentifier():
        end = _end_of_word(text, start + 1)
        return Token("word", text[start:end], start, end)
    return Token("other", char, start, start + 1)


def scan_place(text: str, position: int) -> tuple[str, str, int] | None:
    """Return file, line and end of the ``FILE:LINE`` at ``position`` or behind the blanks there, else None."""
    blank = _BLANK.match(text, position)
    found = _PLACE.match(text, blank.end() if blank else position)
    if not found:
        return None
    quoted = found["quoted"]
    return found["bare"] if quoted is None else quoted.replace('""', '"'), found["line"], found.end()


def _end_of_word(text: str, position: int) -> int:
    """Return where the word ends: identifiers, joined by hyphens as in ``post-mortem``."""
    while position < len(text):
        char = text[position]
        joined = char == "-" and text[position + 1 : position + 2].isidentifier()
        if not joined and not ("a" + char).isidentifier():
            break
        position += 1
    return position
