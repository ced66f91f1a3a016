"""Waiting for answers: the thread that waits reads for all.

Rules:

* One thread at a time **leads**: it polls all links and completes the calls of all threads. A thread that waits while
  another leads **follows**: it sleeps until its own call is done or the lead is free.
* While no thread waits, answers stay in the kernel until one looks. ``await`` has the caller's event loop read; a
  done-callback, and bytes that a socket did not take, have the **background** read (the root's loop, or the control
  thread of a rank).
* Callbacks, which may be user code, run when the lead has been given up.
* Deadlines run on `HoldClock`; those of a line that a user has typed run on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from meshrt.errors import ForkedMeshError
from meshrt.hooks.facts import UnreadError
from meshrt.transport.clock import Deadline, HoldClock
from meshrt.transport.interrupts import Shield
from meshrt.transport.pending import Finishing, Pending
from meshrt.transport.waits import Waits

if TYPE_CHECKING:
    import asyncio

    from meshrt.hooks.services import Waited

__all__ = ["Waiting", "epoll_to_wake", "in_forked_child"]

#: Seconds of one poll: the kernel's clocks take no more than some weeks.
_LONGEST_POLL = 86400.0
#: The same where signals are handled. One that comes just before the kernel waits, or to another thread, ends no poll.
_SIGNAL_POLL = 1.0


def in_forked_child() -> ForkedMeshError:
    """Return the error for a use of a mesh in a forked child."""
    return ForkedMeshError(
        f"process {os.getpid()} was forked from a program with meshes and cannot use them; "
        "use the meshes in the parent, or start this work as an actor"
    )


class Waiting(ABC):
    """Which thread reads the links of this process, and when. What is read is up to the subclass. Any thread.

    Args:
        switch: Begins (True) or stops (False) calling `poll_nowait`, on a background thread, when `fileno` is ready.

    Attributes:
        waits: What threads and tasks wait for.
        clock: The clock of deadlines.
        shield: Delays Ctrl-C while links are read and written.
    """

    def __init__(self, switch: Callable[[bool], None]) -> None:
        self._switch = switch
        self.clock: HoldClock = HoldClock()
        self.waits: Waits = Waits()
        # Written at each wait: the same dict.
        self._waits = self.waits.entries
        self.shield: Shield = Shield(self.wake)
        self.callback_lock: threading.RLock = threading.RLock()
        self._epoll, self._wake_fd = epoll_to_wake()
        self._lead = threading.Lock()
        #: A lock for each thread that waits while another one leads, released to wake it. No condition variable: a
        #: signal handler wakes them too.
        self.followers: set[threading.Lock] = set()
        self._later: deque[Callable[[], None]] = deque()
        self._wanted: set[int] = set()
        self._loops: dict[asyncio.AbstractEventLoop, int] = {}
        #: The event loop of the main thread, while something is awaited there.
        self.main_loop: asyncio.AbstractEventLoop | None = None
        self._interjections: deque[Callable[[Waited], None]] = deque()
        #: Called at each wait with what is waited for, and may raise; None: the process is to be told of nothing.
        self.alarm: Callable[[Pending], None] | None = None
        self._alerts = 0
        #: Called with every error that a wait raises.
        self.on_error: Callable[[BaseException], None] | None = None
        #: Called with the number of a failure that an answer brings: reading the answer raises it. And with the time at
        #: which a caller was given another error of that call (monotonic ns), or 0.
        self.on_failure: Callable[[str, UnreadError, int], None] | None = None
        #: Wake the tasks that await, to look at the alarm.
        self.alerted: set[Callable[[], None]] = set()
        #: Called when a wait of a thread or an asyncio task has ended, on that thread; None: it is not wanted.
        self.wait_ended: Callable[[], None] | None = None
        self.closed = False
        #: This is a forked child of the process whose links these are: nothing can be waited for.
        self.forked = False

    @abstractmethod
    def _poll(self, timeout: float | None) -> None:
        """Wait for the links and read them, once; the lead is held. At most ``timeout`` seconds, None for ever."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll_nowait` has something to do."""
        return self._epoll.fileno()

    def wait(self, pending: Finishing, timeout: float | None) -> bool:
        """Drive the links until ``pending.finished``. Returns False when ``timeout`` (seconds) ran out.

        Raises:
            ForkedMeshError: In a forked child.
        """
        if pending.finished:
            return True
        if self.forked:
            raise in_forked_child()
        deadline = None if timeout is None else Deadline(self.clock.of_thread(), timeout)
        if not isinstance(pending, Pending):
            return self._wait(pending, deadline, main=False)
        ident = threading.get_ident()
        outer = self._waits.get(ident)  # a wait may run what waits
        try:
            self.waits_for(ident, pending, deadline)
            return self._wait(pending, deadline, main=ident == threading.main_thread().ident)
        finally:
            # No call of Python's own: Ctrl-C would come at its first instruction.
            if outer is not None:
                self._waits[ident] = outer
            else:
                self._waits.pop(ident, None)
            if self.wait_ended is not None:
                self.wait_ended()

    def waits_for(self, waiter: object, pending: Pending | None, deadline: Deadline | None = None) -> None:
        """Note what a thread (its ident) or an asyncio task waits for, and its deadline; None: nothing any more."""
        if pending is not None:
            self._waits[waiter] = pending, time.monotonic(), deadline
            return
        self._waits.pop(waiter, None)
        if self.wait_ended is not None:
            self.wait_ended()

    def _wait(self, pending: Finishing, deadline: Deadline | None, *, main: bool) -> bool:
        # Ctrl-C must not come between taking the lead and knowing it; `wake` ends the poll, `check` raises.
        self.shield.close()
        alerts = 0
        longest = _SIGNAL_POLL if main or not isinstance(pending, Pending) else None
        try:
            while not pending.finished:
                self.shield.check()
                left = longest
                if deadline is not None:
                    left = min(deadline.left(), longest or _LONGEST_POLL)
                    if left <= 0:
                        # One more look at what has arrived already.
                        self.poll_nowait()
                        return bool(pending.finished)
                alarm = self.alarm  # another thread may take it away
                if alarm is not None and alerts != self._alerts and isinstance(pending, Pending):
                    alerts = self._alerts
                    self._unshielded(functools.partial(alarm, pending))
                    continue
                if main and self._interjections:
                    self._interrupt_wait(pending)
                elif self._lead.acquire(blocking=False):
                    self._lead_once(left)
                else:
                    self._follow(pending, left, main, alerts)
            return True
        finally:
            self.shield.open()

    def _lead_once(self, timeout: float | None) -> None:
        try:
            self._poll(timeout)
        finally:
            self._lead.release()
            if self.followers:
                self.wake_followers()
        if self._later:
            self._run_callbacks()

    def _follow(self, pending: Finishing, timeout: float | None, main: bool, alerts: int) -> None:
        waiter = threading.Lock()
        waiter.acquire()
        self.followers.add(waiter)
        try:
            # Looked at after it can be woken: what happens from here on releases the lock.
            called = (main and (self._interjections or self.shield.pending)) or (
                self.alarm is not None and alerts != self._alerts
            )
            if not pending.finished and self._lead.locked() and not called:
                waiter.acquire(timeout=-1 if timeout is None else timeout)
        finally:
            self.followers.discard(waiter)

    def _interrupt_wait(self, pending: Finishing) -> None:
        function = self._interjections.popleft()
        self.background(function, True)
        try:
            # The main thread waits for a `Future`.
            self._unshielded(functools.partial(function, cast("Waited", pending)))
        finally:
            self.background(function, False)

    def _unshielded(self, function: Callable[[], None]) -> None:
        self.shield.open()
        try:
            function()
        finally:
            self.shield.close()

    def alert(self, alarm: Callable[[Pending], None]) -> None:
        """Have ``alarm`` called by each wait, now and until it is taken away. Any thread."""
        self.alarm = alarm
        self._alerts += 1
        self.wake()
        for wake in tuple(self.alerted):
            wake()

    def poll_nowait(self) -> None:
        """Read what has arrived. A no-op while another thread leads. Raises ForkedMeshError in a forked child."""
        self.refuse_if_forked()
        self.shield.close()
        try:
            if self._lead.acquire(blocking=False):
                self._lead_once(0)
        finally:
            self.shield.open()

    def wake_followers(self) -> None:
        """Let the threads that follow look again. Any thread, and signal handlers."""
        for waiter in tuple(self.followers):
            with contextlib.suppress(RuntimeError):  # released already
                waiter.release()

    def wake(self) -> None:
        """Make the leader return from its poll, and the followers look again."""
        if not (self.closed or self.forked):  # the descriptor may be that of something else by now
            os.eventfd_write(self._wake_fd, 1)
        if self.followers:
            self.wake_followers()

    def run_later(self, callbacks: list[Callable[[], None]]) -> None:
        """Run callbacks once the lead is given up; they may be user code."""
        self._later.extend(callbacks)
        if not self._lead.locked():
            self._run_callbacks()

    def _run_callbacks(self) -> None:
        while self._later:
            try:
                callback = self._later.popleft()
            except IndexError:
                return
            callback()

    # -- event loops, background, interjections

    def enter_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let ``loop`` (the running one) read the links until `leave_loop`; they count. Else as `poll_nowait`."""
        self.refuse_if_forked()
        count = self._loops.get(loop, 0)
        if not count:
            loop.add_reader(self._epoll.fileno(), self.poll_nowait)
        self._loops[loop] = count + 1
        if threading.get_ident() == threading.main_thread().ident:
            self.main_loop = loop

    def leave_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Undo one `enter_loop`."""
        count = self._loops.pop(loop) - 1
        if count:
            self._loops[loop] = count
        else:
            loop.remove_reader(self._epoll.fileno())
            if loop is self.main_loop:
                self.main_loop = None

    def background(self, reason: object, wanted: bool) -> None:
        """Want (or no longer want) the background to read the links, for ``reason``."""
        with self.callback_lock:
            before = bool(self._wanted)
            if wanted:
                self._wanted.add(id(reason))
            else:
                self._wanted.discard(id(reason))
            if before != bool(self._wanted):
                self._switch(not before)

    def interject(self, function: Callable[[Waited], None]) -> bool:
        """Run ``function(pending)`` on the main thread if it waits now; see `RootServices.interject`."""
        if threading.main_thread().ident not in self._waits:
            return False
        self._interjections.append(function)
        self.wake()
        return True

    def refuse_if_forked(self) -> None:
        """Raise ForkedMeshError in a forked child. Any thread."""
        if self.forked:
            raise in_forked_child()

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _close_poll(self) -> None:
        self._epoll.close()
        with contextlib.suppress(OSError):
            os.close(self._wake_fd)


def epoll_to_wake() -> tuple[select.epoll, int]:
    """Return an epoll, and an eventfd that wakes who waits there. Raises OSError: there is no room for both."""
    with contextlib.ExitStack() as undo:
        epoll = undo.enter_context(select.epoll())
        wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        undo.callback(os.close, wake_fd)
        epoll.register(wake_fd, select.EPOLLIN)
        undo.pop_all()
    return epoll, wake_fd
