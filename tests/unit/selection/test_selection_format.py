"""What the parser makes of a selection as text."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given

from meshrt.selection import Selection, parse
from tests.strategies import selections
from tests.support.selection_text import format_selection

__all__: list[str] = []


@given(selections())
def test_parse_inverts_format(selection: Selection) -> None:
    text = format_selection(selection)
    assert parse(text) == selection
    assert format_selection(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "tidy"),
    [
        ("3", "ranks(3)"),
        ("0:4 ,9,  12:", "ranks(0:4,9,12:)"),
        ("*", "ranks(:)"),
        ("pp = 2, dp=(1 , 3)", "ranks(pp=2, dp=(1,3))"),
        ("pp=2 & dp=1", "ranks(pp=2, dp=1)"),
        ("pp=2, stopped", "ranks(pp=2 & stopped)"),
        ("(a=1 & b=2) | !(c=3)", "ranks(a=1 & b=2 | !c=3)"),
        ("(a=1 | b=2), !(c=3, d=4)", "ranks((a=1 | b=2) & !(c=3 & d=4))"),
        ("(1,2) & !(3,4)", "ranks((1,2) & !(3,4))"),
        ("at 'a':3", """ranks(at "'a'":3)"""),
        ('at "a""b.py":3', 'ranks(at "a""b.py":3)'),
        ('at "plain.py":3', "ranks(at plain.py:3)"),
    ],
)
def test_tidy_form(text: str, tidy: str) -> None:
    assert format_selection(parse(text)) == tidy


def test_spans_and_text_do_not_count_and_selections_travel() -> None:
    selection = parse("ranks(hosts=1 | !2)")
    assert selection == parse(" hosts=1|!2")
    assert hash(selection) == hash(parse(" hosts=1|!2"))
    assert pickle.loads(pickle.dumps(selection)) == selection
    assert selection != parse("hosts=1 | !3")
