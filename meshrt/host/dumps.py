"""The stacks of ranks whose control thread is silent: a signal asks for them, and faulthandler needs no GIL.

A rank that writes its stacks and says nothing else holds its GIL in C code, unless it lacks a processor: on a machine
with too much work a thread that could answer may not run for a second. So the kernel is asked for how long its threads
have waited for one meanwhile. If that was most of the time, its stacks are asked for again, for `_STARVED_SECONDS`.
"""

from __future__ import annotations

import contextlib
import signal
import time

from meshrt.host.child import Child
from meshrt.host.pulse import STACK_SIGNAL, Pulse
from meshrt.transport.kernel import is_stopped, kernel_state, run_delays

__all__ = ["Dumps"]

#: Seconds of a look at how long threads wait for a processor, at least; and the share of it that is too much.
_WINDOW = 0.05
_STARVED = 0.5
#: Seconds for which a rank that lacks a processor is given more time.
_STARVED_SECONDS = 3.0


class _Dump:
    __slots__ = ("begun", "delays", "patience", "size", "start", "text", "written")

    def __init__(self, patience: float) -> None:
        #: Until when a rank that lacks a processor is asked again, monotonic seconds.
        self.patience = patience
        #: The stacks that were written last; None: none yet.
        self.text: str | None = None
        self.start = self.size = 0
        #: Whether they were written since they were asked for last.
        self.written = False
        self.begun = 0.0
        self.delays: dict[int, int] = {}


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
            ask: Ask for its stacks, if it has not been asked. Without this, the ones that are there are returned.
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
                dump = self._asked[child] = _Dump(time.monotonic() + _STARVED_SECONDS)
                self._ask(child, dump)
            return None
        size, before = child.fault_size(), dump.size
        dump.size = size
        if size > dump.start and (size == before or not ask):  # otherwise it is not written yet, or being written
            dump.text = child.take_dump(dump.start)
            dump.start = size
            dump.written = True
        if ask and (not dump.written or time.monotonic() < dump.begun + _WINDOW):
            return None
        if dump.text is None:
            return None
        if ask and time.monotonic() < dump.patience and self._delayed(child, dump):
            self._ask(child, dump)
            return None
        del self._asked[child]
        return "busy", dump.text

    def lacks_processor(self, child: Child) -> bool:
        """Whether a silent rank that was asked for its stacks has hardly run since."""
        dump = self._asked.get(child)
        if dump is not None and not dump.written:
            with contextlib.suppress(OSError):
                # The signal has woken its main thread. The kernel counts a delay only when it is over.
                if kernel_state(child.pid) == "R":
                    return True
        return dump is not None and self._delayed(child, dump)

    def _ask(self, child: Child, dump: _Dump) -> None:
        start = self._pulse.dump_begun(child)
        if start is None or start < child.asked_faults:  # that one was read already
            start = child.fault_size()
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child.pidfd, STACK_SIGNAL)
        dump.start = dump.size = start
        dump.written = False
        dump.begun = time.monotonic()
        dump.delays = run_delays(child.pid)

    @staticmethod
    def _delayed(child: Child, dump: _Dump) -> bool:
        """Whether a thread of the rank has waited for a processor for most of the time since it was asked."""
        now = time.monotonic()
        longest = max(
            (delay - dump.delays[thread] for thread, delay in run_delays(child.pid).items() if thread in dump.delays),
            default=0,
        )
        return longest / 1e9 >= _STARVED * (now - dump.begun)

    def forget(self, child: Child) -> None:
        """Drop the request: its answer is no longer wanted."""
        dump = self._asked.pop(child, None)
        if dump is not None and not child.gone:
            child.take_dump(dump.start)
