"""The clocks of two machines: how far they are apart, and how sure that is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.hooks.clock import DRIFT, ClockComparison, HostClock

MS = 1_000_000
SECOND = 1_000 * MS
DAY = 86_400 * SECOND


def test_a_round_trip_tells_the_offset_to_half_of_its_time() -> None:
    comparison = ClockComparison("n1")
    comparison.compared(1 * SECOND, DAY + 1 * SECOND + 3 * MS, 1 * SECOND + 4 * MS)
    clock = comparison.clock(1 * SECOND + 4 * MS)
    assert (clock.host, clock.error) == ("n1", 2 * MS)
    assert abs(clock.offset + DAY) <= clock.error


def test_the_fastest_round_trip_counts_and_the_error_grows_until_the_next_one() -> None:
    comparison = ClockComparison("n1")
    for number, took in enumerate((40 * MS, 1 * MS, 60 * MS)):
        sent = (number + 1) * SECOND
        comparison.compared(sent, sent - DAY + took // 2, sent + took)
    last = 3 * SECOND + 60 * MS
    assert abs(comparison.clock(last).offset - DAY) <= comparison.clock(last).error < 2 * MS
    assert comparison.clock(last + 10 * SECOND).error - comparison.clock(last).error == pytest.approx(
        10 * SECOND * DRIFT, abs=2
    )


def test_a_clock_that_was_suspended_is_compared_anew() -> None:
    comparison = ClockComparison("n1")
    comparison.compared(SECOND, SECOND, SECOND + MS)
    comparison.compared(9 * SECOND, 3 * SECOND, 9 * SECOND + MS)
    assert abs(comparison.clock(9 * SECOND).offset - 6 * SECOND) <= MS


def test_times_of_one_host_keep_their_order_while_the_comparison_becomes_better() -> None:
    comparison = ClockComparison("n1")
    offsets = []
    for number, took in enumerate((90, 70, 20, 8, 3)):
        sent = SECOND + number * 100 * MS
        comparison.compared(sent, sent + took * MS // 2, sent + took * MS)
        offsets.append(comparison.clock(sent).offset)
    assert len(set(offsets)) == 1


@given(st.integers(0, 1 << 32), st.integers(-400 * DAY, 400 * DAY))
def test_the_truth_is_within_the_error(seed: int, apart: int) -> None:
    """Whatever the network does, and with clocks that drift."""
    draw = random.Random(seed)
    rate = 1 + draw.uniform(-DRIFT, DRIFT) * 0.99
    comparison = ClockComparison("n1")
    now = 10 * DAY

    def theirs(at: int) -> int:
        return apart + 500 * DAY + round((at - 10 * DAY) * rate)

    for _ in range(30):
        sent = now + draw.randrange(2 * SECOND)
        read = sent + draw.randrange(50_000, 40 * MS)
        now = read + draw.randrange(50_000, 40 * MS)
        comparison.compared(sent, theirs(read), now)
        later = now + draw.randrange(SECOND)
        clock = comparison.clock(later)
        assert abs(clock.time(theirs(later)) - later) <= clock.error + 2


def test_what_is_not_known_stays_unknown() -> None:
    clock = HostClock("n1", DAY, 5, 3600.0)
    assert (clock.time(0), clock.time(7), clock.date(0.0), clock.date(1.0)) == (0, DAY + 7, 0.0, 3601.0)
