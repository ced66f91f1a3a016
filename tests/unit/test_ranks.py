"""Numbers of ranks as short text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.ranks import fold_ranks
from tests.support.folded import parse_folded

__all__: list[str] = []

RANKS = st.sets(st.integers(0, 60)) | st.builds(
    lambda start, length, step: set(range(start, start + length * step, step)),
    st.integers(0, 99),
    st.integers(0, 20),
    st.integers(1, 9),
)


@given(RANKS, RANKS)
def test_parse_inverts_fold(left: set[int], right: set[int]) -> None:
    ranks = left | right
    folded = fold_ranks(ranks)
    assert parse_folded(folded) == tuple(sorted(ranks))
    assert len(folded) <= len(",".join(map(str, ranks)))


@pytest.mark.parametrize(
    ("ranks", "folded"),
    [
        ([], ""),
        ([5], "5"),
        ([*range(8), *range(9, 16)], "0-7,9-15"),
        ([1, 0], "0-1"),
        ([3, 1, 3], "1,3"),
        (range(1, 32, 2), "1-31:2"),
        ([0, 2, 4], "0,2,4"),
        ([0, 2, 4, 6], "0-6:2"),
        ([0, 2, 4, 5, 6, 7], "0,2,4-7"),
        ([0, 2, 4, 6, 7, 8], "0-6:2,7-8"),
        ([*range(0, 10, 3), 100], "0-9:3,100"),
    ],
)
def test_fold(ranks: list[int], folded: str) -> None:
    assert fold_ranks(ranks) == folded


def test_negative_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        fold_ranks([2, -1])
