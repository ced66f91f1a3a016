"""What a program waits for while it starts, on its terminal: hosts that are to join, ranks that are to start."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from meshrt.mesh.terminal import Terminal
from meshrt.show.streams import is_terminal

__all__ = ["JoiningHosts", "Progress"]

#: Seconds until it is said which hosts are waited for, and how much longer until it is said again.
_FIRST = 5.0
_TIMES = 3.0
#: So many of them are named.
_NAMED = 8
#: Seconds after which a start takes long.
_LONG = 1.0


class JoiningHosts:
    """Says which hosts are waited for, and since when. For engines; one thread.

    Args:
        hosts: The names of all that are to join.
        announce: Writes a line on the program's terminal.
    """

    def __init__(self, hosts: Sequence[str], announce: Callable[[str], None]) -> None:
        self._total = len(hosts)
        self._left = list(hosts)
        self._announce = announce
        self._begun = time.monotonic()
        self._next = _FIRST

    def joined(self, host: str) -> None:
        """A host has joined."""
        self._left.remove(host)

    def look(self) -> None:
        """Say it if it is time. To be called again and again."""
        if self._left and time.monotonic() - self._begun >= self._next:
            self._next *= _TIMES
            self._announce(str(self))

    def __str__(self) -> str:
        names = ", ".join(self._left[:_NAMED]) + (f" and {len(self._left) - _NAMED} more" * (len(self._left) > _NAMED))
        seconds = time.monotonic() - self._begun
        return (
            f"{self._total - len(self._left)} of {self._total} hosts have joined after {seconds:.0f} s; "
            f"waiting for {names or 'none'}"
        )


class Progress:
    """A bar on standard error while many ranks start and take long; only on a terminal that can erase it."""

    def __init__(self, total: int, terminal: Terminal) -> None:
        self._total = total
        self._terminal = terminal
        self._begin = time.monotonic()
        self._shown = False
        erasable = is_terminal(sys.stderr) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
        self._wanted = total >= 8 and erasable and not os.environ.get("CI")

    def update(self, done: int) -> None:
        """``done`` ranks run."""
        if not self._wanted:
            return
        if done < self._total:
            if time.monotonic() - self._begin > _LONG:
                self._shown = True
                self._terminal.progress(self, done, self._total)
        elif self._shown:
            self._terminal.progress(self, self._total, self._total)
