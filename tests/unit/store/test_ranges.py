"""Ranges against sets of numbers."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from meshrt.store.ranges import Ranges

BOUND = 24
pieces = st.tuples(st.integers(0, BOUND), st.integers(0, BOUND)).map(sorted).filter(lambda piece: piece[0] < piece[1])


@given(st.lists(st.tuples(st.booleans(), pieces)), pieces, st.integers(1, BOUND))
def test_against_sets(steps: list[tuple[bool, list[int]]], window: list[int], size: int) -> None:
    ranges, oracle = Ranges(), set[int]()
    for add, (start, end) in steps:
        if add:
            ranges.add(start, end)
            oracle |= set(range(start, end))
        else:
            ranges.remove(start, end)
            oracle -= set(range(start, end))
    found = list(ranges)
    assert {byte for start, end in found for byte in range(start, end)} == oracle
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(found)), "neighbours are joined"
    assert ranges.total == len(oracle)
    start, end = window
    inside = {byte for left, right in ranges.within(start, end) for byte in range(left, right)}
    outside = {byte for left, right in ranges.missing(start, end) for byte in range(left, right)}
    assert inside == oracle & set(range(start, end)) and outside == set(range(start, end)) - oracle
    fits = [left for left in range(BOUND) if set(range(left, left + size)) <= oracle]
    assert ranges.first(size) == (min(fits) if fits else None)
