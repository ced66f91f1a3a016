"""The clock of a host, as the root knows it: what its times are on the root's clock, and how sure that is. Pure.

The monotonic clocks of two machines begin at any time, and run at nearly the same rate. A question and its answer tell
how far they are apart: the host has read its clock after the question was sent and before the answer came. So each
round trip gives an interval, and the fastest one the smallest. Intervals of different moments are compared by the rate
at which two clocks may drift apart (`DRIFT`). The source of both ideas is NTP (RFC 5905).
"""

from __future__ import annotations

import msgspec

__all__ = ["DRIFT", "ClockComparison", "HostClock"]

#: Two clocks drift apart by so much at most, ns in each one: more than the kernel usually corrects one by (500 ppm).
#: A clock that is corrected faster, or was suspended, is compared anew: its intervals do not overlap any more.
DRIFT = 0.0006


class HostClock(msgspec.Struct, frozen=True):
    """How to read the times of a host.

    Attributes:
        host: Its machine; "" is that of the root.
        offset: Is added to its monotonic clock to have the root's, ns.
        error: The offset is wrong by so much at most, ns.
        wall: Is added to its wall clock to have the root's, seconds; for people only.
    """

    host: str = ""
    offset: int = 0
    error: int = 0
    wall: float = 0.0

    def time(self, moment: int) -> int:
        """Return a moment of its monotonic clock (ns) on the root's; 0 stays 0: it is not known."""
        return moment + self.offset if moment else 0

    def date(self, seconds: float) -> float:
        """Return a time of its wall clock (seconds since the epoch) on the root's; 0 stays 0."""
        return seconds + self.wall if seconds else 0.0


class ClockComparison:
    """Compares the clock of a host with that of the root. One thread.

    The offset stays the same as long as it may be right: so the order of what happens on one host is kept exactly.

    Args:
        host: See `HostClock`.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._low = self._high = self._offset = 0
        self._wall = 0.0
        #: When it was compared last, on the root's clock, ns; 0: never.
        self._at = 0

    def compared(self, sent: int, theirs: int, received: int, wall: float = 0.0) -> None:
        """Take a round trip.

        Args:
            sent, received: When the question was sent and the answer came, on the root's clock, ns.
            theirs: What the host has read on its clock between the two, ns.
            wall: The root's wall clock at ``received``, less that of the host, seconds.
        """
        low, high = sent - theirs, received - theirs
        if self._at:
            drift = round(DRIFT * max(0, received - self._at))
            earlier = self._low - drift, self._high + drift
            if max(low, earlier[0]) <= min(high, earlier[1]):
                low, high = max(low, earlier[0]), min(high, earlier[1])
        if not (self._at and low <= self._offset <= high):
            self._offset = (low + high) // 2
        self._low, self._high, self._at = low, high, received
        self._wall = wall - (received - sent) / 2e9

    def clock(self, now: int) -> HostClock:
        """Return what is known at ``now``, on the root's clock, ns."""
        drift = round(DRIFT * max(0, now - self._at))
        error = max(self._high - self._offset, self._offset - self._low) + drift
        return HostClock(self._host, self._offset, error, self._wall)
