"""A typed line, read word by word; and what a line is as Python.

A line of a prompt has blanks between its words, and ``ranks(...)`` is one word, whatever is in it. The words of a shell
may have blanks in them.
"""

from __future__ import annotations

import ast
import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence

from meshrt import selection  # its grammar is loaded when it is used
from meshrt.errors import SelectionError

__all__ = ["RANKS", "Line", "behind", "head", "is_expression", "is_python"]

#: The begin of a selection.
RANKS = re.compile(r"ranks\s*\(")


class Line:
    """A typed line, or the words of a shell, which is read from left to right.

    Attributes:
        text: The whole line. Marks of errors point into it.
    """

    def __init__(self, text: str, spans: Sequence[tuple[int, int]], *, typed: bool) -> None:
        self.text = text
        self._typed = typed
        self._spans = spans
        self._index = 0
        self._at = spans[0][0] if spans else len(text)

    @classmethod
    def typed(cls, text: str) -> Line:
        """Return a line of a prompt: blanks are between its words."""
        text = text.rstrip()
        return cls(text, [match.span() for match in re.finditer(r"\S+", text)], typed=True)

    @classmethod
    def given(cls, words: Sequence[str]) -> Line:
        """Return the words of a shell, which may have blanks in them."""
        spans, at = [], 0
        for word in words:
            spans.append((at, at + len(word)))
            at += len(word) + 1
        return cls(" ".join(words), spans, typed=False)

    @property
    def more(self) -> bool:
        """Whether there is another word."""
        return self._index < len(self._spans)

    @property
    def at(self) -> int:
        """Where the next word begins."""
        return self._at

    @property
    def left(self) -> str:
        """The text from the next word on."""
        return self.text[self._at :]

    def peek(self) -> str:
        """Return the next word; "" at the end."""
        return self.text[self._at : self._spans[self._index][1]] if self.more else ""

    def take(self) -> str:
        """Read the next word; "" at the end."""
        word = self.peek()
        if self.more:
            self._index += 1
            self._at = self._begin()
        return word

    def take_all(self) -> list[str]:
        """Read all words that are left."""
        words = []
        while self.more:
            words.append(self.take())
        return words

    def move(self, end: int) -> str:
        """Read the text up to an offset. Returns it."""
        text = self.text[self._at : end]
        while self.more and self._spans[self._index][1] <= end:
            self._index += 1
        self._at = max(end, self._begin())
        return text

    def _begin(self) -> int:
        return self._spans[self._index][0] if self._index < len(self._spans) else len(self.text)

    def at_ranks(self) -> bool:
        """Whether ``ranks(`` comes next."""
        return self.more and RANKS.match(self.text, self._at) is not None

    def selection(self) -> str:
        """Read the value of ``--ranks``: a word, or ``ranks(...)`` with blanks in it. Raises SelectionError."""
        return self.ranks() if self._typed and self.at_ranks() else self.take()

    def ranks(self) -> str:
        """Read ``ranks(...)``. Raises SelectionError."""
        end = selection.parse_prefix(self.text, self._at)[1]
        if self.text[end : end + 1] == ")":
            expected = ("a blank", "the end of the line")
            raise SelectionError("unmatched parenthesis", text=self.text, span=(end, end + 1), expected=expected)
        return self.move(end)


def head(text: str) -> tuple[str, str]:
    """Return the first word of a line, and the rest."""
    word, _, rest = text.strip().partition(" ")
    return word, rest.strip()


def behind(text: str, word: str) -> str:
    """Return what follows ``word`` at the begin of a line that is not valid Python; "" for any other line."""
    first, rest = head(text)
    return rest if first == word and rest and not is_python(text.strip()) else ""


def is_expression(text: str) -> bool:
    """Whether a text is a valid expression of Python."""
    try:
        with _quiet():
            ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: nested too deeply
        return False
    return True


def is_python(text: str) -> bool:
    """Whether a text is valid Python, or the beginning of a statement of several lines."""
    import codeop  # start-up: seldom

    try:
        with _quiet():
            codeop.compile_command(text)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError):
        return False
    return True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Have Python not warn of the text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
