"""The words for what ranks do."""

from __future__ import annotations

from meshrt.program.words import WORST_FIRST
from meshrt.selection.grammar.ast import STATE_WORDS


def test_they_are_the_words_of_the_grammar() -> None:
    assert sorted(WORST_FIRST) == sorted(STATE_WORDS)
