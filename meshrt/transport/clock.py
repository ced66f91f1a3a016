"""The clock of deadlines, which is suspended while a user holds a rank at a breakpoint."""

from __future__ import annotations

import threading
import time

from meshrt.hooks.table import hooks

__all__ = ["HoldClock"]


class HoldClock:
    """A monotonic clock, seconds, that is suspended while anything is held. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holds = 0
        self._since = 0.0
        self._lost = 0.0

    def now(self) -> float:
        """Return the time of this clock, seconds; it does not advance while a rank is held. Any thread."""
        with self._lock:
            return (self._since if self._holds else time.monotonic()) - self._lost

    @property
    def held(self) -> bool:
        """Whether anything is held. Any thread."""
        return bool(self._holds)

    def hold(self, held: bool) -> None:
        """Begin or end one hold; they count."""
        with self._lock:
            before = bool(self._holds)
            if held:
                if not self._holds:
                    self._since = time.monotonic()
                self._holds += 1
            elif self._holds:
                self._holds -= 1
                if not self._holds:
                    self._lost += time.monotonic() - self._since
            changed = bool(self._holds) != before
        if changed and hooks.hold_changed:
            hooks.run(hooks.hold_changed, held)
