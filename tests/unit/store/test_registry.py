"""Who holds what, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.errors import StoreFull
from meshrt.store.registry import Chunk, Registry, Segment
from meshrt.store.table import held_by, segment_rows

OWNER, FIRST, SECOND = 1, 2, 3


def registry() -> tuple[Registry, list[int], list[int]]:
    freed: list[int] = []
    dropped: list[int] = []
    made = Registry(1000, lambda _owner, segment: freed.append(segment), lambda chunk: dropped.append(chunk.id))
    made.add_chunk(Chunk(7, OWNER, 4096, descriptor=-1))
    made.grant(OWNER, 500, 10_000)
    return made, freed, dropped


def share(made: Registry, number: int, holders: list[int]) -> None:
    made.share(Segment(number, OWNER, 7, 0, 100, "put", "a.py:1"), holders)


def test_a_segment_is_free_when_all_have_let_go() -> None:
    made, freed, dropped = registry()
    share(made, 5, [FIRST, SECOND])
    made.let_go(5, FIRST)
    assert not freed
    made.let_go(5, SECOND)
    assert freed == [5] and not dropped


def test_what_is_let_go_before_it_is_shared() -> None:
    """Messages of different processes are not ordered."""
    made, freed, _ = registry()
    made.let_go(5, FIRST)
    share(made, 5, [FIRST])
    assert freed == [5]


def test_it_is_there_while_a_process_holds_it() -> None:
    made, freed, _ = registry()
    assert made.segment(5) is None
    share(made, 5, [OWNER])
    assert not made.holds(5, FIRST)
    made.give(5, [FIRST])
    assert made.holds(5, FIRST) and not made.holds(6, FIRST)
    made.let_go(5, OWNER)
    assert not freed
    made.let_go(5, FIRST)
    assert freed == [5] and made.segment(5) is None


def test_what_a_dead_owner_has_written_stays_for_its_holders() -> None:
    made, freed, dropped = registry()
    share(made, 5, [FIRST])
    made.ended(OWNER)
    assert not dropped and made.chunk(7) is not None and made.committed == 100
    made.let_go(5, FIRST)
    assert dropped == [7] and made.chunk(7) is None and not freed and made.committed == 0


def test_an_owner_that_shared_nothing_leaves_nothing() -> None:
    made, _, dropped = registry()
    made.ended(OWNER)
    assert dropped == [7] and made.committed == 0


def test_limits() -> None:
    made, _, _ = registry()
    with pytest.raises(StoreFull, match="MESHRT_STORE_LIMIT"):
        made.grant(FIRST, 501, 10_000)
    with pytest.raises(StoreFull, match="free on this host"):
        made.grant(FIRST, 400, 399)
    made.grant(OWNER, -500, 0)
    made.grant(FIRST, 1000, 10_000)


@given(
    st.permutations(
        [("share", 0), *(("give", pid) for pid in (FIRST, SECOND)), *(("go", pid) for pid in (OWNER, FIRST, SECOND))]
    )
)
def test_in_any_order_nothing_is_left(events: list[tuple[str, int]]) -> None:
    made, freed, _ = registry()
    for what, pid in events:
        if what == "share":
            share(made, 5, [OWNER])
        elif what == "give":
            made.give(5, [pid])
        else:
            made.let_go(5, pid)
    assert freed and made.segments() == [] and made.processes() == {OWNER}


def test_equal_segments_are_one_row() -> None:
    made, _, _ = registry()
    for number in range(1, 6):
        share(made, number, [OWNER, FIRST])
    share(made, 9, [SECOND])
    many, one = segment_rows(made.segments(), 10**30)
    assert many.count == 5 and many.holders == [(OWNER, 1), (FIRST, 1)] and len(many.names) == 3
    assert one.count == 1 and one.names == ["0000000000000009"] and one.site == "a.py:1"
    assert [row.names for row in segment_rows(made.segments(), 0, "0000000000000009")] == [["0000000000000009"]]
    assert held_by(made.segments()) == {OWNER: (600, 0, 100), FIRST: (0, 500, 0), SECOND: (0, 100, 0)}
