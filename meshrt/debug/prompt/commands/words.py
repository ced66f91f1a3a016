"""Terminal side: one line, read from left to right. Errors say what was expected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meshrt.errors import SelectionError, UsageError
from meshrt.selection import near_miss, parse_prefix

__all__ = ["Words", "parse_nothing"]

_ACTOR = re.compile(r"[\w-]+(?:@[\w.-]+)?(?:/[\w.-]+)?(?=\s|$)")
_BLANKS = re.compile(r"\s*")


class Words:
    """The arguments of a command. Each method reads the next ones; all raise UsageError if they are not valid.

    Args:
        line: The whole line; carets point into it.
        start: Index in ``line`` where the arguments begin.
        usage: The command's synopsis, for error messages.
    """

    def __init__(self, line: str, start: int, usage: str) -> None:
        self._line = line.rstrip()
        self._at = start
        self._usage = usage
        self._has_ranks = False
        self._skip()

    def _skip(self) -> None:
        match = _BLANKS.match(self._line, self._at)
        self._at = match.end() if match is not None else self._at

    def options(self, known: Mapping[str, str]) -> dict[str, str]:
        """Read the options that come next.

        Args:
            known: Option -> description of its value, or "" if it takes none.
        Returns:
            The options found, with their values; "yes" for an option without a value.
        """
        found: dict[str, str] = {}
        while self._peek().startswith("-") and len(self._peek()) > 1:
            option = self._take()
            if option not in known:
                there = f"; there are: {', '.join(known)}" if known else "; it takes none"
                raise UsageError(f"no option {option!r}{near_miss(option, known) or there}; {self.usage()}")
            if known[option] and not self._peek():
                raise UsageError(f"{option} needs {known[option]}; {self.usage()}")
            found[option] = self._take() if known[option] else "yes"
        return found

    def actor(self, *, optional: bool = False) -> str:
        """Read the name of an actor; "" if ``optional`` and there is none."""
        if optional and (not self._peek() or self.at_ranks()):
            return ""
        match = _ACTOR.match(self._line, self._at)
        if match is None:
            word = self._peek()
            raise UsageError(f"{word!r} is no name of an actor; {self.usage()}" if word else self.usage())
        self._at = match.end()
        self._skip()
        return match[0]

    def at_ranks(self) -> bool:
        """Whether ``ranks(...)`` comes next."""
        return re.match(r"ranks\s*\(", self._line[self._at :]) is not None

    def ranks(self, *, optional: bool = False) -> str:
        """Read ``ranks(...)``; "" if ``optional`` and it does not come next. Raises SelectionError with a caret."""
        if optional and not self.at_ranks():
            return ""
        _, end = parse_prefix(self._line, self._at)
        text = self._line[self._at : end]
        self._at = end
        self._has_ranks = True
        self._skip()
        return text

    def variable(self) -> str:
        """Read the name of a variable, which has a dot in it and may have blanks; "" if none comes next."""
        match = re.match(r"[\w-]+\..*?(?=\s+ranks\s*\(|$)", self._line[self._at :])
        if match is None:
            return ""
        self._at += match.end()
        self._skip()
        return match[0]

    def word(self) -> str:
        """Read one word; "" at the end of the line."""
        return self._take()

    def rest(self) -> str:
        """Read the rest of the line, without blanks around it."""
        text = self._line[self._at :].strip()
        self._at = len(self._line)
        return text

    def blame(self, problem: SelectionError) -> SelectionError:
        """Return ``problem``, whose text is the end of the line, with a span that points into the whole line."""
        before = len(self._line) - len(problem.text)
        start, end = problem.span
        span = (start + before, end + before)
        return SelectionError(problem.problem, text=self._line, span=span, expected=problem.expected)

    def end(self) -> None:
        """Raise UsageError unless the whole line has been read."""
        if self._at < len(self._line):
            rest = self._line[self._at :]
            numbers = re.fullmatch(r"[\d:,]+", rest) and "ranks(" in self._usage and not self._has_ranks
            if numbers and _is_selection(f"ranks({rest})"):
                raise UsageError(f"ranks are written ranks({rest})")
            raise UsageError(f"{rest!r} does not belong there; {self.usage()}")

    def usage(self) -> str:
        """Return the command's synopsis for an error message: ``"usage: ..."``."""
        return f"usage: {self._usage}"

    def number(self, text: str, what: str) -> int:
        """Return ``text`` as an integer of at most 9 digits, 0 or more; ``what`` names it in the error."""
        if not re.fullmatch(r"\d{1,9}", text):
            raise UsageError(f"{text!r} is no number of {what}; {self.usage()}")
        return int(text)

    def _peek(self) -> str:
        match = re.match(r"\S*", self._line[self._at :])
        return match[0] if match is not None else ""

    def _take(self) -> str:
        word = self._peek()
        self._at += len(word)
        self._skip()
        return word


def _is_selection(text: str) -> bool:
    try:
        parse_prefix(text, 0)
    except SelectionError:
        return False
    return True


def parse_nothing(words: Words) -> dict[str, Any]:
    """Read the arguments of a command that takes none. Raises UsageError if there are any."""
    words.end()
    return {}
