"""The states of ranks."""

from __future__ import annotations

from meshrt.inspect.states import WORST_FIRST
from meshrt.selection.grammar.ast import STATE_WORDS


def test_they_are_the_words_of_the_grammar() -> None:
    assert sorted(WORST_FIRST) == sorted(STATE_WORDS)
