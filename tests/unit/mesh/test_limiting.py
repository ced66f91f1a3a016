"""So many lines a second, and how many were left out."""

from __future__ import annotations

from meshrt.mesh.folding import Folded, RankLines
from meshrt.mesh.limiting import LineLimit
from meshrt.mesh.shown import parse_shown


def line(text: str, *ranks: int, scope: str = "") -> Folded:
    shown = parse_shown(text, "")
    made = Folded(RankLines("m", ranks[0], False, [], "", shown, scope, 0.0), "trainer", "line")
    made.ranks = list(ranks)
    return made


def test_a_line_of_many_ranks_counts_once_when_it_is_shown_and_for_each_when_it_is_not() -> None:
    limit = LineLimit("meshrt logs 1234")
    many = line("limit=2", 0, 1, 2)
    assert [limit.admits(many, now) for now in (10.0, 10.1, 10.2, 10.9)] == [True, True, False, False]
    assert limit.due == 11.0 and limit.left_out(10.9) == []
    assert limit.left_out(11.0) == ["meshrt: ... 6 lines left out; they are in the files (meshrt logs 1234)"]
    assert limit.left_out(99.0) == []
    assert limit.admits(many, 11.0)


def test_each_setting_has_a_count_of_its_own() -> None:
    limit = LineLimit("meshrt logs")
    for scope in ("", "m"):
        assert [limit.admits(line("limit=1", 0, scope=scope), 10.0) for _ in range(2)] == [True, False]
    assert limit.admits(line("on", 0, scope="free"), 10.0)
    assert limit.left_out(10.5, end=True) == ["meshrt: ... 1 line left out; they are in the files (meshrt logs)"] * 2
