"""A process that a test talks to, and that starts others: all of them end together."""

from __future__ import annotations

import contextlib

import psutil

from tests.dap.talking import Talking

__all__ = ["Family"]

#: In seconds, for the end in order.
_PATIENCE = 10.0


class Family(Talking):
    """Ends in order, at SIGTERM; what is left of its descendants after that is killed."""

    def end(self) -> None:
        """May be called again."""
        if self.process.poll() is None:
            # Asked for while they have a parent: later nobody could tell whose they were.
            members = psutil.Process(self.process.pid).children(recursive=True)
            self.process.terminate()
            _, left = psutil.wait_procs(members, _PATIENCE)
            for member in left:
                with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                    member.kill()
        super().end()
