"""Rank side: a pause that is requested, until a thread stops.

The engine stops a thread at its next line of Python. A main thread that waits in a call has none. The debugger's signal
interrupts it, and it stops in the signal handler. If no thread can stop, the user is told and may withdraw the pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from meshrt.errors import MeshError
from meshrt.hooks.services import RankServices

__all__ = ["Pause"]

#: Seconds after a request to pause at which blocked calls are interrupted, if no thread is stopped by then.
_KICKS = (0.1, 0.3, 1.0)


class Pause:
    """The pause of one IDE. On the pump's thread.

    Args:
        say: Called with a text for the user about what does not stop.
        clock: Returns seconds, as `time.monotonic` does.
    """

    def __init__(
        self, services: RankServices, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._services = services
        self._say = say
        self._clock = clock
        #: The pause is requested, and no thread has stopped for it yet.
        self.pending = False
        #: When blocked calls are interrupted next.
        self._kicks: list[float] = []
        self._said = False

    def ask(self) -> None:
        """Request a pause."""
        now = self._clock()
        self.pending = True
        self._kicks = [now + seconds for seconds in _KICKS]
        self._said = False

    def stopped(self) -> None:
        """A thread has stopped."""
        self.pending = False
        # One more interruption, as the pause may have stopped another thread: the main thread has to stop, too.
        self._kicks = self._kicks[:1]

    def over(self) -> None:
        """Stopped threads resume, or the pause is withdrawn."""
        self.pending = False
        self._kicks = []

    def until_kick(self) -> float | None:
        """Return the seconds until `kick_if_due` has something to do; None if it has nothing to do."""
        return max(0.0, self._kicks[0] - self._clock()) if self._kicks else None

    def kick_if_due(self, stopped: bool) -> None:
        """Interrupt the main thread if that is due.

        Args:
            stopped: Whether a thread is stopped.
        """
        if not self._kicks or self._kicks[0] > self._clock():
            return
        self._kicks.pop(0)
        try:
            self._services.signal_main()
        except MeshError as error:
            self._kicks = []
            self._say(f"a call that blocks cannot be paused: {error}")
            return
        if not self._kicks and not self._said and not stopped:
            self._said = True
            when = "at the next line of Python that runs, unless mesh c takes that back"
            self._say(f"not paused yet: {self._running()}; it stops {when}")

    def _running(self) -> str:
        calls = self._services.current_calls()
        if not calls:
            return "no endpoint runs"
        call = calls[-1]
        what = f"{call.endpoint}() of {call.actor}"
        first = next((actor.name for actor in self._services.actors()), call.actor)
        if call.actor != first:
            only = f"only the first actor of a rank ({first}) can be stopped in the middle of what it waits for"
            return f"{what} waits, or is in C code, on a thread of its own; {only}"
        return f"{what} is in C code, or awaits"
