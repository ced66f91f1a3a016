"""The debugger as a script enters it. The prompt's modules are loaded only when the script opens it."""

from __future__ import annotations

__all__ = ["DebugClient", "debug_client"]


class _Entered:
    """What ``enter.call_one()`` returns: ``get()`` opens the prompt."""

    def get(self, timeout: float | None = None) -> None:
        """Open the prompt in the calling thread. Returns when no rank is stopped any more, or when the person leaves.

        It waits for the first stop. Without a terminal no prompt opens: it returns when ranks have stopped and all of
        them were resumed from elsewhere.

        Args:
            timeout: Seconds to wait for the first stop; None: no limit.
        Raises:
            UsageError: This program has no mesh.
            TimeoutError: No rank has stopped within ``timeout`` seconds.
        """
        from meshrt.debug.prompt.entry import enter  # start-up: as above

        enter(timeout)


class _Enter:
    """The callable part of `DebugClient.enter`."""

    def call_one(self) -> _Entered:
        """Return an object whose ``get()`` opens the prompt."""
        return _Entered()

    call = call_one


class DebugClient:
    """The debugger, as a script enters it: ``debug_client().enter.call_one().get()``."""

    def __init__(self) -> None:
        self.enter: _Enter = _Enter()


def debug_client() -> DebugClient:
    """Return the debugger of this program. A script at a terminal does not need it: the prompt opens by itself."""
    return DebugClient()
