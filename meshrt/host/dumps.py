"""The stacks of ranks whose control thread is silent: a signal asks for them, and faulthandler needs no GIL."""

from __future__ import annotations

import contextlib
import signal

from meshrt.host.child import Child
from meshrt.host.pulse import STACK_SIGNAL, Pulse
from meshrt.transport.kernel import is_stopped

__all__ = ["Dumps"]


class _Dump:
    __slots__ = ("size", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        #: Length of the fault file at the last look.
        self.size = start


class Dumps:
    """Call `look` until it returns a result.

    Args:
        pulse: It asks the same ranks by the same signal; its requests are waited for, not repeated.
    """

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._asked: dict[Child, _Dump] = {}

    def look(self, child: Child, *, ask: bool) -> tuple[str, str] | None:
        """Return state and stacks of a silent rank: ``"stopped"`` by a signal, or ``"busy"``; None: not known yet.

        Args:
            ask: Ask for its stacks, if it has not been asked.
        """
        if not child.pid:
            return None  # about to start
        with contextlib.suppress(OSError):  # without a look-up, its stacks may tell
            if is_stopped(child.pid):
                self.forget(child)
                return "stopped", ""
        dump = self._asked.get(child)
        if dump is None:
            if ask:
                self._ask(child)
            return None
        size, before = child.fault_size(), dump.size
        dump.size = size
        if size == dump.start or size != before:
            return None  # not written yet, or being written
        del self._asked[child]
        return "busy", child.take_dump(dump.start)

    def _ask(self, child: Child) -> None:
        start = self._pulse.dump_begun(child)
        if start is None:
            start = child.fault_size()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, STACK_SIGNAL)
        self._asked[child] = _Dump(start)

    def forget(self, child: Child) -> None:
        """Drop the request: its answer is no longer wanted."""
        dump = self._asked.pop(child, None)
        if dump is not None and not child.gone:
            child.take_dump(dump.start)
