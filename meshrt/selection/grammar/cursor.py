"""Tokens, and ``Cursor``: the position of a parse in its text. It knows limits and complaints, but not the rules.

Blanks between tokens are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from meshrt.errors import SelectionError
from meshrt.selection.grammar.complaints import complain

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "Cursor", "Token", "scan_place"]

MAX_LENGTH = 10_000  # characters of one selection
MAX_DEPTH = 32  # nested parentheses and "!"

T = TypeVar("T")

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


class Cursor:
    """The text, the current token, the end of the one before it, and the depth in parentheses.

    Args:
        text: All of the text; spans count from its begin.
        start: Where the selection begins.
    """

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self._limit = start + MAX_LENGTH
        self._depth = 0
        self.previous_end = start
        self.token = self.scan(start)

    def scan(self, position: int) -> Token:
        """Return the token at ``position`` without going there; SelectionError when the selection gets too long."""
        token = _scan(self.text, position)
        if token.end > self._limit:
            raise SelectionError(f"the selection is longer than {MAX_LENGTH} characters")
        return token

    def advance(self) -> None:
        """Go to the next token."""
        self.move_to(self.token.end)

    def move_to(self, end: int) -> None:
        """Go to the token behind ``end``."""
        self.previous_end = end
        self.token = self.scan(end)

    def accept(self, kind: str) -> bool:
        """Step over a token of ``kind`` if one is here."""
        if self.token.kind != kind:
            return False
        self.advance()
        return True

    def expect(self, kind: str, expected: Sequence[str]) -> int:
        """Require a token of ``kind``; return its end and stay in front of it. ``expected`` is for the complaint."""
        if self.token.kind != kind:
            raise self.unexpected(expected)
        return self.token.end

    def nested(self, rule: Callable[[], T]) -> T:
        """Run ``rule`` one level deeper; SelectionError when that is too deep."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"nested too deep: more than {MAX_DEPTH} levels of parentheses and !")
        result = rule()
        self._depth -= 1
        return result

    def unexpected(self, expected: Sequence[str]) -> SelectionError:
        """Return the complaint that the current token is not valid here."""
        ended = self.token.kind == "end"
        return self.error("the text ends too early" if ended else f"{self.token.value!r} is not valid here", expected)

    def error(self, problem: str, expected: Sequence[str] = ()) -> SelectionError:
        """Return a complaint about the current token."""
        return complain(problem, self.text, (self.token.start, self.token.end), expected)


def _scan(text: str, position: int) -> Token:
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
