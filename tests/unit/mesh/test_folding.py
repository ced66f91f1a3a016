"""Equal lines of ranks are one line, and the lines of each rank stay in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshrt.mesh.folding import RankLines, folded
from meshrt.mesh.shown import Shown


def printed(rank: int, *lines: str, err: bool = False, prefixed: bool = True, wait: float = 0.1) -> RankLines:
    labelled = [("trainer", line) for line in lines]
    return RankLines("m", rank, err, labelled, f"n={rank}", Shown(), "", 1.0, prefixed, wait)


def texts(*parts: RankLines) -> list[str]:
    return [str(line) for line in folded(parts)]


def test_equal_lines_of_ranks_are_one() -> None:
    assert texts(*(printed(rank, "loading") for rank in range(64))) == ["[trainer 0-63] loading"]
    assert texts(printed(0, "a"), printed(2, "b"), printed(3, "a"), printed(7, "a")) == [
        "[trainer 0,3,7] a",
        "[trainer n=2] b",
    ]


def test_lines_of_a_rank_keep_their_order() -> None:
    assert texts(printed(0, "a", "b"), printed(1, "b", "a"), printed(2, "a", "b")) == [
        "[trainer 0,2] a",
        "[trainer 0-2] b",
        "[trainer n=1] a",
    ]
    assert texts(printed(0, "a", "a"), printed(1, "a")) == ["[trainer 0-1] a", "[trainer n=0] a"]


def test_what_differs_in_more_than_its_rank_is_not_put_together() -> None:
    other = printed(1, "a")._replace(mesh="other")
    assert len(texts(printed(0, "a"), printed(1, "a", err=True), other)) == 3
    named = printed(1, "a")._replace(lines=[("helper", "a")])
    assert texts(printed(0, "a"), named) == ["[trainer n=0] a", "[helper n=1] a"]


def test_without_a_prefix_or_a_wait_each_line_is_shown() -> None:
    assert texts(*(printed(rank, "a", prefixed=False) for rank in range(2))) == ["a", "a"]
    assert texts(*(printed(rank, "a", wait=0.0) for rank in range(2))) == ["[trainer n=0] a", "[trainer n=1] a"]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"))))
def test_every_line_of_every_rank_is_there_in_order(lines: list[tuple[int, str]]) -> None:
    found = folded(printed(rank, line) for rank, line in lines)
    for rank in range(4):
        assert [each.line for each in found if rank in each.ranks] == [line for of, line in lines if of == rank]
    assert sum(len(each.ranks) for each in found) == len(lines)
