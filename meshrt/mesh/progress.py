"""How many ranks of a mesh have started, on the program's terminal."""

from __future__ import annotations

import os
import sys
import time

from meshrt.mesh.terminal import Terminal

__all__ = ["Progress"]


class Progress:
    """A line on standard error while many ranks start; on a terminal only."""

    def __init__(self, total: int, terminal: Terminal) -> None:
        self._total = total
        self._terminal = terminal
        self._begin = time.monotonic()
        self._shown = False
        self._wanted = total >= 8 and sys.stderr is not None and sys.stderr.isatty() and not os.environ.get("CI")

    def update(self, done: int) -> None:
        """``done`` ranks run."""
        if not self._wanted:
            return
        if done < self._total:
            if time.monotonic() - self._begin > 0.3:
                self._shown = True
                self._terminal.write(f"\rmeshrt: {done}/{self._total} ranks started", err=True, acts=True)
        elif self._shown:
            self._terminal.write("\r\x1b[K", err=True, acts=True)
