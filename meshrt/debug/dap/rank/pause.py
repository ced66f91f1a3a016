"""Rank side: a pause that has been asked for, until something stands.

The engine stops a thread at its next line of Python. A main thread that waits in a call has none: it is interrupted by
the debugger's signal, in whose handler it stops. What has no thread to stop is told to a person, who may take it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from meshrt.errors import MeshError
from meshrt.hooks.services import RankServices

__all__ = ["Pause"]

#: Seconds after a request to pause at which blocked calls are interrupted, if nothing stands by then.
_KICKS = (0.1, 0.3, 1.0)


class Pause:
    """Of one IDE. On the pump's thread.

    Args:
        say: Told, for a person, what does not stop.
        clock: Seconds, as `time.monotonic` tells them.
    """

    def __init__(
        self, services: RankServices, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._services = services
        self._say = say
        self._clock = clock
        #: It has been asked for, and nothing stands for it.
        self.pending = False
        #: When blocked calls are interrupted next.
        self._kicks: list[float] = []
        self._said = False

    def ask(self) -> None:
        """An IDE asks for it."""
        now = self._clock()
        self.pending = True
        self._kicks = [now + seconds for seconds in _KICKS]
        self._said = False

    def stopped(self) -> None:
        """A thread stands."""
        self.pending = False
        # One more where a pause has stopped another thread: the main thread is to stand, too, not to wait on.
        self._kicks = self._kicks[:1]

    def over(self) -> None:
        """What stands goes on, or nothing is to stand any more."""
        self.pending = False
        self._kicks = []

    def until_kick(self) -> float | None:
        """Return the seconds until `kick_if_due` has something to do; None: nothing."""
        return max(0.0, self._kicks[0] - self._clock()) if self._kicks else None

    def kick_if_due(self, standing: bool) -> None:
        """Interrupt the main thread, if it is time for that.

        Args:
            standing: Whether a thread stands.
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
        if not self._kicks and not self._said and not standing:
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
