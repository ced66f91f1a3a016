"""What the ratchet says."""

from __future__ import annotations

from tests.house.bars import Bar, complaints
from tests.house.figures import Figure


def test_a_figure_at_its_bar_is_well() -> None:
    assert complaints([Figure("lines", 10, 5), Figure("median", 7)], {"lines": Bar(10)}) == []


def test_a_worse_figure_is_named_with_its_places() -> None:
    (text,) = complaints([Figure("circles", 2, 0, ["a, b", "c, d"])], {"circles": Bar(1)})
    assert text == "'circles' is worse: it was 1 and is 2\nlook at:\n  a, b\n  c, d"


def test_many_places_are_cut() -> None:
    (text,) = complaints([Figure("circles", 25, 0, [f"place {n}" for n in range(25)])], {"circles": Bar(24)})
    assert "  place 19\n" in text and "place 20" not in text and text.endswith("  and 5 more; `make house` lists them")


def test_a_better_figure_wants_its_bar_to_follow() -> None:
    assert complaints([Figure("circles", 2, 0, ["a, b"])], {"circles": Bar(3)}) == [
        "'circles' is better: it was 3 and is 2: set its bar to 2"
    ]


def test_within_its_margins_a_figure_may_change() -> None:
    bars = {"lines": Bar(100, more=10, less=20)}
    assert [len(complaints([Figure("lines", now, 50)], bars)) for now in (79, 80, 110, 111)] == [1, 0, 0, 1]


def test_figures_with_aims_and_bars_belong_together() -> None:
    assert complaints([Figure("lines", 3, 0)], {}) == ["'lines' has an aim and no bar; its bar is 3"]
    assert complaints([], {"lines": Bar(3)}) == ["no figure 'lines'; remove its bar"]
