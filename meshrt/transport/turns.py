"""How many handshakes with ranks of other machines a process has at a time.

A handshake of TLS takes about a millisecond of a processor on each side, and a rank waits only some seconds for it
(`meshrt.transport.entrance`). A process that begins with a thousand ranks at once, or on a busy machine with less,
would let most of them wait longer than that, and begin anew with all of them.

A turn ends with its handshake, and after `TURN_SECONDS` at the latest: a rank that does not answer, on a machine that
is lost, delays no other for longer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from meshrt.transport.outlink import OutLink

__all__ = ["AT_A_TIME", "TURN_SECONDS", "Turns"]

AT_A_TIME = 32
TURN_SECONDS = 1.0
#: Seconds between two looks for turns that have lasted too long, while others wait for theirs.
_LOOK = 0.1


class Turns:
    """The turns of the links of a process. Any thread.

    Args:
        later: Calls a function after some seconds, on a thread that must not be blocked.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._later = later
        self._lock = threading.Lock()
        #: Whose turn it is, the oldest first, and since when (monotonic).
        self._since: dict[OutLink, float] = {}
        self._waiting: deque[tuple[OutLink, Callable[[], None]]] = deque()
        self._looks = False
        #: A thread calls those whose turn has come.
        self._calls = False

    def take(self, out: OutLink, begin: Callable[[], None]) -> bool:
        """Return whether it is the turn of a link. If not, ``begin()`` is called when it is, on any thread."""
        with self._lock:
            if out in self._since:
                return True
            if len(self._since) < AT_A_TIME and not self._waiting:
                self._since[out] = time.monotonic()
                return True
            self._waiting.append((out, begin))
            looks, self._looks = self._looks, True
        if not looks:
            self._later(_LOOK, self._look)
        return False

    def end(self, out: OutLink) -> None:
        """The turn of a link is over; a no-op if it is not its turn."""
        with self._lock:
            if self._since.pop(out, None) is None or self._calls or not self._waiting:
                return
        self._call_next()

    def _look(self) -> None:
        overdue = time.monotonic() - TURN_SECONDS
        with self._lock:
            self._since = {out: since for out, since in self._since.items() if since > overdue}
        self._call_next()
        with self._lock:
            self._looks = bool(self._waiting)
            if not self._looks:
                return
        self._later(_LOOK, self._look)

    def _call_next(self) -> None:
        """Begin with as many as may be at a time. What ends while one begins, also by that, is looked at after it."""
        while True:
            with self._lock:
                if not self._waiting or len(self._since) >= AT_A_TIME:
                    return
                out, begin = self._waiting.popleft()
                self._since[out] = time.monotonic()
                self._calls = True
            try:
                begin()
            finally:
                self._calls = False
