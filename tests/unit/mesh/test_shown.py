"""The setting of what is shown live: its text, and the ranks that it means."""

from __future__ import annotations

import re

import pytest

from meshrt.errors import SelectionError, UsageError
from meshrt.mesh.shown import Shown, parse_shown, shown_at_start
from meshrt.selection import Shape

MESH = Shape.from_extent({"hosts": 2, "gpus": 2})


def test_words_and_options() -> None:
    assert parse_shown(" on ", "") == Shown()
    assert parse_shown("off", "").nothing and parse_shown("off", "").members(MESH) == frozenset()
    shown = parse_shown("limit=20, ranks(hosts=1, gpus=0:2)  fold=0.5", "")
    assert (shown.limit, shown.fold, shown.members(MESH)) == (20, 0.5, frozenset({2, 3}))
    assert parse_shown("fold=off", "").fold == 0.0
    assert parse_shown("limit=off", "") == Shown("limit=off")
    assert [parse_shown(f"level={level}", "").level for level in ("info", "ERROR", "15", "off")] == [20, 40, 15, None]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("quiet", "'quiet' is not an option"),
        ("0", "'0' is not an option"),
        ("off fold=1", "'off' cannot be combined with options"),
        ("fold=fast", "'fold=fast': a time to wait is a number of seconds up to 60, or off"),
        ("fold=61", "a number of seconds up to 60, or off"),
        ("limit=0", "a limit is a number of lines from 1 to 1000000, or off"),
        ("limit=1.5", "a number of lines from 1"),
        ("limit=1 limit=2", "limit is given twice"),
        ("level=loud", "'level=loud': a level is a name such as info, a number, or off"),
        ("level=", "a level is a name such as info"),
        ("ranks(0) ranks(1)", "ranks is given twice"),
        ("ranks(stopped)", "cannot name states of ranks, only ranks and dimensions"),
        (7, "a setting is a text, not int"),
        (False, "a setting is a text, not bool"),
    ],
)
def test_what_is_invalid_is_refused_with_what_was_expected(text: object, said: str) -> None:
    with pytest.raises(UsageError, match="expected 'on', 'off', or options such as") as caught:
        parse_shown(text, "logs=")
    assert str(caught.value).startswith(f"logs={text!r}: ") and said in str(caught.value)


def test_an_invalid_selection_is_pointed_at() -> None:
    with pytest.raises(UsageError, match=re.escape("logs='fold=1 ranks(0-3)': a range is written with a colon")):
        parse_shown("fold=1 ranks(0-3)", "logs=")


def test_a_mesh_without_such_ranks() -> None:
    for text, program in (("ranks(7)", frozenset[int]()), ("ranks(pp=0)", frozenset(range(4)))):
        shown = parse_shown(f"fold=off {text}", "")
        assert shown.members(MESH) == program
        with pytest.raises(SelectionError) as caught:
            shown.members(MESH, strict=True)
        assert caught.value.text == text


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MESHRT_LOGS", raising=False)
    assert shown_at_start() == Shown()
    monkeypatch.setenv("MESHRT_LOGS", "ranks(0)")
    assert shown_at_start().members(MESH) == frozenset({0})
    monkeypatch.setenv("MESHRT_LOGS", "no")
    with pytest.raises(UsageError, match="MESHRT_LOGS='no': 'no' is not an option"):
        shown_at_start()
