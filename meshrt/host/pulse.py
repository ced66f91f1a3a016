"""Ranks that live but do not answer: found, explained, and reported when they are back.

The agent pings every rank's control thread. A rank that has not answered by the next tick is looked up in ``/proc``:
stopped by a signal is reported at once. One that is silent for `BUSY_SECONDS` holds the GIL in C (nothing else
silences the control thread): it is asked for its stacks by a signal that faulthandler serves without the GIL. A silent
rank is never declared dead: only its pidfd can say that.

::

    answering -> stopped    /proc says T           -> answering   a pong
    answering -> busy       silent for a while     -> answering   a pong
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterable

from meshrt.host.child import Child
from meshrt.transport.kernel import is_stopped

__all__ = ["BUSY_SECONDS", "STACK_SIGNAL", "Pulse"]

#: faulthandler writes all stacks on it; a real-time signal with no other use.
STACK_SIGNAL = signal.SIGRTMIN + 7
BUSY_SECONDS = 3.0
_INTERVAL = 1.0
#: Ranks that may be pinged in one second.
_PER_SECOND = 256


class Pulse:
    """Call `tick` every `interval` seconds and `answered` for each pong.

    Args:
        ping: Sends a ping to a rank.
        report: ``report(child, state, stack)``; state is ``"stopped"``, ``"busy"`` or ``"answering"``.
    """

    def __init__(self, ping: Callable[[Child], None], report: Callable[[Child, str, str], None]) -> None:
        self._ping = ping
        self._report = report
        self._asked: dict[Child, float] = {}
        self._states: dict[Child, str] = {}
        #: Asked for their stacks: how long the fault file was before.
        self._dumping: dict[Child, int] = {}
        self._last = time.monotonic()

    @staticmethod
    def interval(count: int) -> float:
        """Seconds between two ticks for so many ranks."""
        return max(_INTERVAL, count / _PER_SECOND)

    def tick(self, children: Iterable[Child]) -> None:
        """Look at every rank."""
        now = time.monotonic()
        alive = [child for child in children if child.pid]
        late = now - self._last > self.interval(len(alive)) + 1.0
        self._last = now
        for child in alive:
            asked = self._asked.get(child)
            if asked is None or late:
                # If this process itself was stopped for a while, every rank seems silent: begin again.
                self._asked[child] = now
                self._ping(child)
            elif child not in self._states:
                self._judge(child, now - asked)

    def _judge(self, child: Child, silent: float) -> None:
        try:
            stopped = is_stopped(child.pid)
        except OSError:
            return  # it cannot be looked up: at the next tick
        if stopped:
            self._change(child, "stopped", "")
        elif child in self._dumping:
            # Asked at the last tick: what there is now is the answer.
            self._change(child, "busy", child.take_dump(self._dumping.pop(child)))
        elif silent >= BUSY_SECONDS:
            self._dumping[child] = child.fault_size()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, STACK_SIGNAL)

    def _change(self, child: Child, state: str, stack: str) -> None:
        self._states[child] = state
        self._report(child, state, stack)

    def answered(self, child: Child) -> None:
        """The rank's control thread has answered."""
        self._asked.pop(child, None)
        start = self._dumping.pop(child, None)
        if start is not None:
            child.take_dump(start)
        if self._states.pop(child, None) is not None:
            self._report(child, "answering", "")

    def dump_begun(self, child: Child) -> int | None:
        """Return where in its fault file the dump begins that the rank was asked for and that is not read yet."""
        return self._dumping.get(child)

    def forget(self, child: Child) -> None:
        """The rank has ended."""
        self._asked.pop(child, None)
        self._states.pop(child, None)
        self._dumping.pop(child, None)
