"""Connections that were refused, on the log: one line a minute, however many there are."""

from __future__ import annotations

import logging
import time

__all__ = ["Refusals"]

_SECONDS = 60.0


class Refusals:
    """What one listening socket refuses. One thread."""

    def __init__(self) -> None:
        self._silent = 0
        self._next = 0.0

    def note(self, peer: str, error: Exception) -> None:
        """A peer was refused because of ``error``."""
        now = time.monotonic()
        if now < self._next:
            self._silent += 1
            return
        more = f"; {self._silent} more since the last such line" if self._silent else ""
        logging.getLogger("meshrt").warning("%s was refused: %s%s", peer, error, more)
        self._silent = 0
        self._next = now + _SECONDS
