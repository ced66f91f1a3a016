"""The rules of the selection grammar, by recursive descent; ``docs/grammar.md`` has them as EBNF.

A comma-separated list is either rank numbers (any of them matches) or conditions (all must hold). To avoid ambiguity a
list does not mix both, and ``|`` beside a comma needs parentheses.
"""

from __future__ import annotations

from collections.abc import Sequence

from meshrt.errors import SelectionError
from meshrt.selection.grammar.ast import (
    STATE_WORDS,
    All,
    Dim,
    Group,
    Index,
    Item,
    Node,
    Not,
    Place,
    Range,
    RankSet,
    Selection,
    Span,
    State,
    conjunction,
    disjunction,
)
from meshrt.selection.grammar.complaints import complain, near_miss
from meshrt.selection.grammar.cursor import Cursor, scan_place

__all__ = ["parse", "parse_prefix"]

_MAX_DIGITS = 18

_TERMS = (
    "a rank number",
    "a range such as 0:4",
    "a dimension such as hosts=0",
    "a word such as stopped",
    "parentheses",
)
_JOINTS = ("a comma", "&", "|")
_VALUES = ("a number", "a range such as 0:4", "a list such as (1,3)")
_HINTS = {"and": "&", "or": "|", "not": "!"}


def parse(text: str) -> Selection:
    """Return the selection that ``text`` denotes, written with or without ``ranks( )`` around it.

    Raises:
        SelectionError: The text is not in the grammar; ``.span`` and ``.expected`` say where and what is.
    """
    parser = _Parser(text, 0)
    expr = parser.expression()
    parser.expect("end", (*_JOINTS, "the end"))
    return Selection(expr, text)


def parse_prefix(text: str, start: int = 0) -> tuple[Selection, int]:
    """Parse the ``ranks(...)`` that begins at ``start`` of a longer text, such as a debugger command.

    Returns:
        The selection, whose spans count from the begin of ``text``, and the offset just behind its closing parenthesis.
    Raises:
        SelectionError: There is no such term, or it is not in the grammar.
    """
    parser = _Parser(text, start)
    if not parser.at_ranks():
        raise parser.error("a selection of ranks is missing", ("ranks(...), for instance ranks(0:4) or ranks(all)",))
    expr, end = parser.ranks_term()
    return Selection(expr, text), end


class _Parser(Cursor):
    """The rules. Each method parses what its name says, from the current token on."""

    def expression(self) -> Node:
        """expression = list | union ; list = conjunction {"," conjunction} ; union = conjunction {"|" conjunction}."""
        parts = [self._conjunction()]
        joint = self.token.kind
        if joint not in (",", "|"):
            return parts[0]
        while self.accept(joint):
            parts.append(self._conjunction())
        if self.token.kind in (",", "|"):
            problem = "a comma and | are mixed without parentheses"
            raise self.error(problem, ("parentheses around one of the two lists",))
        return disjunction(parts) if joint == "|" else self._list(parts)

    def _list(self, parts: Sequence[Node]) -> Node:
        numbers = [part for part in parts if isinstance(part, RankSet)]
        if not numbers:
            return conjunction(parts)
        for part in parts:
            if not isinstance(part, RankSet):
                odd = part if isinstance(parts[0], RankSet) else numbers[0]
                problem = "a comma joins rank numbers or conditions, but not both"
                raise complain(problem, self.text, odd.span, ("& for ranks in both", "| for ranks in either"))
        items = tuple(item for part in numbers for item in part.items)
        return RankSet(items, span=(parts[0].span[0], parts[-1].span[1]))

    def _conjunction(self) -> Node:
        parts = [self._negation()]
        while self.accept("&"):
            parts.append(self._negation())
        return conjunction(parts)

    def _negation(self) -> Node:
        start = self.token.start
        if not self.accept("!"):
            return self._primary()
        if self.token.kind == "=":
            raise self.error("!= is not part of the grammar", ("! in front of the dimension, as in !hosts=2",))
        operand = self.nested(self._negation)
        return Not(operand, span=(start, operand.span[1]))

    def _primary(self) -> Node:
        token = self.token
        if token.kind == "word":
            return self._word_term()
        if token.kind in ("number", ":", "*"):
            item = self._item(_TERMS)
            return RankSet((item,), span=item.span)
        if not self.accept("("):
            raise self.unexpected(_TERMS)
        inner = self.nested(self.expression)
        self.move_to(self.expect(")", (*_JOINTS, ")")))
        return inner

    def _word_term(self) -> Node:
        token = self.token
        word, span = token.value, (token.start, token.end)
        following = self.scan(token.end)
        if following.kind == "=":
            return self._dim()
        if self.at_ranks():
            inner, end = self.ranks_term()
            self.move_to(end)
            return inner
        if word == "at":
            return self._place()
        if word == "in":
            return self._group()
        if word in _HINTS:
            raise self.unexpected(())
        self.advance()
        if word == "all":
            return All(span=span)
        if word in STATE_WORDS:
            return State(word, span=span)
        if following.kind == "!" and self.scan(following.end).kind == "=":
            raise complain("!= is not part of the grammar", self.text, span, (f"!{word}=...",))
        if word == "ranks":
            raise complain("'ranks' needs parentheses", self.text, span, ("ranks(...)",))
        guess = near_miss(word, (*STATE_WORDS, "all", "at", "in", "ranks")) or ""
        expected = (f"{word}=... for a dimension", "all", *STATE_WORDS, "at FILE:LINE", "in GROUP")
        raise complain(f"unknown word {word!r} in a selection{guess}", self.text, span, expected)

    def at_ranks(self) -> bool:
        """Whether ``ranks(`` comes next."""
        return self.token.value == "ranks" and self.scan(self.token.end).kind == "("

    def ranks_term(self) -> tuple[Node, int]:
        """Parse ``ranks(...)``; return what is in it and where it ends. Nothing behind it is looked at."""
        self.advance()
        self.advance()
        inner = self.nested(self.expression)
        return inner, self.expect(")", (*_JOINTS, ")"))

    def _dim(self) -> Node:
        name = self.token
        if not name.value.isidentifier():
            raise self.error(f"{name.value!r} cannot be a dimension", ("a dimension such as hosts",))
        self.advance()
        self.advance()
        if self.token.kind == "=":
            raise self.error("one = is enough", _VALUES)
        items = [] if self.accept("(") else [self._item(_VALUES)]
        if not items:
            items.append(self._item(_VALUES[:2]))
            while self.accept(","):
                items.append(self._item(_VALUES[:2]))
            self.move_to(self.expect(")", ("a comma", ")")))
        return Dim(name.value, tuple(items), span=(name.start, self.previous_end), name_span=(name.start, name.end))

    def _group(self) -> Node:
        start = self.token.start
        self.advance()
        name = self.token
        if name.kind != "word":
            raise self.error("'in' needs the name of a process group", ("GROUP, for instance dp",))
        self.advance()
        return Group(name.value, span=(start, name.end))

    def _place(self) -> Node:
        word = self.token
        found = scan_place(self.text, word.end)
        if found is None:
            self.advance()
            raise self.error("'at' needs a place", ("FILE:LINE, for instance train.py:41",))
        file, line, end = found
        span = (word.start, end)
        if not file:
            raise complain("'at' needs the name of a file", self.text, span, ("FILE:LINE",))
        number = self._integer(line, (end - len(line), end))
        if number < 1:
            raise complain("lines count from 1", self.text, span)
        self.move_to(end)
        return Place(file, number, span=span)

    def _item(self, expected: Sequence[str]) -> Item:
        start = self.token.start
        if self.accept("*"):
            return Range(span=(start, self.previous_end))
        first = self._number()
        if not self.accept(":"):
            if first is None:
                raise self.unexpected(expected)
            self._refuse_hyphen(start, first)
            return Index(first, span=(start, self.previous_end))
        stop = self._number()
        step = None
        if self.accept(":"):
            step_start = self.token.start
            step = self._number()
            if step is not None and step < 1:
                problem = "the step of a range must be at least 1"
                raise complain(problem, self.text, (step_start, self.previous_end))
        return Range(first, stop, step, span=(start, self.previous_end))

    def _refuse_hyphen(self, start: int, first: int) -> None:
        """``0-7`` reads as the numbers 0 and -7; say how a range is written."""
        token = self.token
        if token.kind == "number" and token.start == self.previous_end and token.value.startswith("-"):
            last = self._integer(token.value[1:], (token.start + 1, token.end))
            problem = "a range is written with a colon, and its end is exclusive"
            raise complain(problem, self.text, (start, token.end), (f"{first}:{last + 1}",))

    def unexpected(self, expected: Sequence[str]) -> SelectionError:
        """Return the complaint that the current token is not valid here, with a hint for the syntax of other tools."""
        token = self.token
        if token.value in _HINTS:
            return self.error(f"the word {token.value!r} is not part of the grammar", (_HINTS[token.value],))
        if token.kind in ("&", "|") and self.text[: self.previous_end].endswith(token.kind):
            return self.error(f"one {token.kind} is enough", expected)
        return super().unexpected(expected)

    def _number(self) -> int | None:
        token = self.token
        if token.kind != "number":
            return None
        self.advance()
        return self._integer(token.value, (token.start, token.end))

    def _integer(self, digits: str, span: Span) -> int:
        if len(digits.lstrip("-")) > _MAX_DIGITS:
            raise complain("this number is too large", self.text, span)
        return int(digits)
