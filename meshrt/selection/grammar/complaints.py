"""Errors of the grammar: one way to make a ``SelectionError``, and the guess at what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from meshrt.errors import SelectionError
from meshrt.selection.grammar.ast import Span

__all__ = ["complain", "near_miss"]


def complain(problem: str, text: str, span: Span, expected: Sequence[str] = ()) -> SelectionError:
    """Return the error for ``span`` of ``text``. What cannot be printed becomes a blank, so that the caret fits."""
    shown, problem = ("".join(char if char.isprintable() else " " for char in each) for each in (text, problem))
    return SelectionError(problem, text=shown, span=span, expected=expected)


def near_miss(word: str, candidates: Iterable[str]) -> str:
    """Return ``"; did you mean 'hosts'?"`` when a candidate resembles ``word``, else nothing."""
    known = {candidate.lower(): candidate for candidate in candidates}
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {known[close[0]]!r}?" if close else ""
