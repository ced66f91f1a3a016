"""``Cursor``: the position of a parse in its text. It knows tokens, limits and complaints, but not the rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from meshrt.errors import SelectionError
from meshrt.selection.grammar.complaints import complain
from meshrt.selection.grammar.scanner import Token, scan

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "Cursor"]

MAX_LENGTH = 10_000  # characters of one selection
MAX_DEPTH = 32  # nested parentheses and "!"

T = TypeVar("T")


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
        token = scan(self.text, position)
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
        return self.error("the text ends too early" if ended else f"{self.token.value!r} cannot stand here", expected)

    def error(self, problem: str, expected: Sequence[str] = ()) -> SelectionError:
        """Return a complaint about the current token."""
        return complain(problem, self.text, (self.token.start, self.token.end), expected)
