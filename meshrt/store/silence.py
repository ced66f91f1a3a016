"""Whether a wait for a peer has timed out: then it is not waited for again, until it sends something.

``speaks -> silent``, when a wait has timed out, and no message came meanwhile;
``silent -> speaks``, when a message of it is read, or no answer of it is open.
"""

from __future__ import annotations

import time

__all__ = ["Silence"]


class Silence:
    """Of one peer. One thread at a time.

    Attributes:
        since: Since when it has said nothing, although it was waited for (monotonic); 0.0: it speaks.
    """

    __slots__ = ("_heard", "since")

    def __init__(self) -> None:
        self.since = 0.0
        #: When a message of it was last read (monotonic).
        self._heard = 0.0

    def heard(self) -> None:
        """It has said something, to any thread."""
        self._heard = time.monotonic()
        self.since = 0.0

    def in_vain(self, begun: float) -> None:
        """It was waited for since then (monotonic), long enough. It is silent if nothing was heard of it since."""
        if self._heard <= begun:
            self.since = self.since or begun

    def forget(self) -> None:
        """It is not known to be silent, though nothing was heard of it."""
        self.since = 0.0
