"""Texts fit a width in columns of a terminal, whatever characters they have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.show.ranks import fold_meshes
from meshrt.show.table import Room, padded, table
from meshrt.show.text import broken, cut, since, width_of, wrapped

TEXTS = st.text(st.sampled_from("ab/é日\u0301"), max_size=20)


@pytest.mark.parametrize(("text", "width"), [("", 0), ("abc", 3), ("é", 1), ("e\u0301", 1), ("日本", 4), ("a日", 3)])
def test_width(text: str, width: int) -> None:
    assert width_of(text) == width


@given(TEXTS, st.integers(3, 20), st.booleans())
def test_what_is_cut_fits(text: str, most: int, begin: bool) -> None:
    short = cut(text, most, begin=begin)
    assert width_of(short) <= most
    assert short == text or (short.startswith("...") if begin else short.endswith("..."))
    assert (short == text) == (width_of(text) <= most)


@pytest.mark.parametrize(
    ("line", "columns", "lines"),
    [
        ("one two three", None, ["one two three"]),
        ("one two three", 13, ["one two three"]),
        ("one two three", 12, ["one two", "    three"]),
        ("  one    two", 8, ["  one", "    two"]),
        ("a-word-that-is-long is whole", 10, ["a-word-that-is-long", "    is", "    whole"]),
        ("one two", 1, ["one", "    two"]),
        ("日本語 日本語 日本語", 13, ["日本語 日本語", "    日本語"]),
    ],
)
def test_a_line_is_broken_between_words(line: str, columns: int | None, lines: list[str]) -> None:
    assert broken(line, columns, "    ") == lines


@given(st.lists(st.text("ab日", min_size=1, max_size=8), min_size=1), st.integers(1, 30))
def test_what_is_broken_fits_and_keeps_its_words(words: list[str], columns: int) -> None:
    lines = broken(" ".join(words), columns, "  ")
    assert " ".join(lines).split() == words
    assert all(width_of(line) <= columns or len(line.split()) == 1 for line in lines)


def test_cut() -> None:
    assert (cut("abcdef", 5), cut("abcdef", 5, begin=True), cut("abcde", 5)) == ("ab...", "...ef", "abcde")
    assert (cut("日本語日本", 6), cut("日本語日本", 6, begin=True)) == ("日...", "...本")


@given(TEXTS, st.integers(0, 30), st.booleans())
def test_padding(text: str, width: int, right: bool) -> None:
    assert width_of(padded(text, width, right=right)) == max(width, width_of(text))


@pytest.mark.parametrize(("seconds", "text"), [(-3, "0 s"), (99.4, "99 s"), (100, "2 min"), (7200, "2 h")])
def test_since(seconds: float, text: str) -> None:
    assert since(1000.0, 1000.0 + seconds) == text


def test_ranks_of_several_meshes_are_named() -> None:
    assert fold_meshes({"m1": [0, 1, 2]}, {"m1": "train"}) == "0-2"
    assert fold_meshes({"m2": [3], "m1": [0, 1]}, {"m1": "train", "m2": "eval"}) == "train 0-1, eval 3"
    assert fold_meshes({"gone": [3]}, {"m1": "train"}) == "gone 3"


def test_what_is_wrapped_is_whole_until_it_is_cut() -> None:
    assert wrapped("stopped at step.py:88", 12, 3) == "stopped at\nstep.py:88"
    assert wrapped("/home/you/step.py runs", 10, 3) == "/home/you/\nstep.py\nruns"
    assert wrapped("one two three four", 5, 3) == "one\ntwo\nth..."


def test_nothing_of_a_cell_acts_on_a_terminal_or_breaks_it() -> None:
    lines = table(("NAME", "SIZE"), [["a\nb\x1b[2J", 7], ["c", 12]], Room(None), right=("SIZE",))
    assert lines == ["NAME         SIZE", "a\\nb\\e[2J       7", "c              12"]
    wide = table(("NAME", "SIZE"), [["日" * 30, 7]], Room(24, (), {"NAME": 4}), grid=True)
    assert all(width_of(line) <= 24 for line in wide) and "..." in wide[5]
