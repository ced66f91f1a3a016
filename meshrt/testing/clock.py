"""``fake_clock()``: the time of actors in the process of a test, which the test sets.

`FakeClock.advance` goes from moment to moment: the timers of event loops, and the time limits of waits and calls. At
each one it lets what is due run until all actors are quiet (`meshrt.testing.clocked`), one event loop after the other.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator

from meshrt.actor.actors import ActorHost
from meshrt.errors import MeshError, UsageError
from meshrt.mesh.own_ranks import OwnRanks
from meshrt.mesh.program import start_root
from meshrt.mesh.root import Root
from meshrt.testing.clocked import ClockedLoop, ClockedMailbox, is_readable
from meshrt.transport.driver import Driver

__all__ = ["FakeClock", "current_clock", "fake_clock"]

#: Seconds (of the world) that actors have to become quiet.
_PATIENCE = 10.0
#: ... between two looks at them.
_LOOK = 0.001
#: Moments that are so close, seconds, are one: sums of fractions are not exact.
_SAME = 1e-9

_current: FakeClock | None = None


class FakeClock:
    """The clock of a `fake_clock` block. Threads of the script.

    Args:
        driver: That of the program.
        auto: See `fake_clock`.
    """

    def __init__(self, driver: Driver, *, auto: bool = False) -> None:
        self._driver = driver
        self._owner = threading.get_ident()
        self._now = 0.0
        self._lock = threading.RLock()
        self._ranks: list[OwnRanks] = []
        self._pause = threading.Event()
        self._ended = threading.Event()
        self._auto = threading.Thread(target=self._go_on, name="meshrt-clock", daemon=True) if auto else None
        #: Since when time passes by itself: monotonic seconds.
        self._released_at = 0.0
        self.released: bool = False

    def time(self) -> float:
        """Return the time, seconds: 0 at the beginning of the block. Any thread."""
        return self._now + (time.monotonic() - self._released_at if self.released else 0.0)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass for the actors, at once, and wait until all of them are quiet.

        What is due on the way runs in its order, at its time.

        Args:
            seconds: >= 0; 0: only wait until they are quiet.
        Raises:
            UsageError: ``seconds`` is negative or not finite, or the block has ended.
            MeshError: An actor is at work for 10 s (of the world), or waits for something of which the clock does not
                know.
        """
        if not (seconds >= 0 and math.isfinite(seconds)):
            raise UsageError(f"advance: invalid seconds={seconds}: expected a finite number, 0 or more")
        if self.released:
            raise UsageError("advance: the block of this clock has ended")
        with self._lock:
            target = self._now + seconds
            self._settle()
            while (moment := self._next()) <= target + _SAME:
                self._go(max(moment, self._now))
                self._settle()
            self._go(target)
            self._settle()

    # -- for local meshes

    def _make_ranks(self, root: Root, count: int) -> OwnRanks:
        """Return new ranks whose actors have this clock."""
        ranks = OwnRanks(root, count, functools.partial(ClockedMailbox, self))
        with self._lock:
            self._ranks.append(ranks)
        return ranks

    def _stop_ranks(self, ranks: OwnRanks, grace: float) -> list[str]:
        """Stop ranks; the grace passes on this clock. Returns the actors that still run."""
        try:
            return ranks.stop(grace, self._join, self.time)
        finally:
            with self._lock:
                if ranks in self._ranks:
                    self._ranks.remove(ranks)

    def _join(self, host: ActorHost, seconds: float) -> bool:
        """Advance until the threads of a rank have ended, by ``seconds`` at most; returns whether they have."""
        with self._lock:
            target = self._now + seconds
            while True:
                try:
                    self._settle()
                except MeshError:  # a call that does not end
                    return host.join(0)
                if all(mailbox.executor.state == "ended" for mailbox in tuple(host.mailboxes.values())):
                    return host.join(_PATIENCE)
                if self._now >= target:
                    return host.join(0)
                self._go(max(self._now, min(self._next(), target)))

    # -- one step

    def _mailboxes(self) -> list[ClockedMailbox]:
        hosts = [host for ranks in self._ranks for host in ranks.hosts]
        found = [mailbox for host in hosts for mailbox in tuple(host.mailboxes.values())]
        return [mailbox for mailbox in found if isinstance(mailbox, ClockedMailbox)]

    def _loops(self) -> list[ClockedLoop]:
        return [each.clocked for each in self._mailboxes() if each.clocked is not None and not each.has_ended]

    def _next(self) -> float:
        """Return the next moment at which something is due; infinity: there is none."""
        timers = [due for loop in self._loops() if (due := loop.due()) is not None]
        now = self._driver.clock.now()
        waits = [
            deadline.left()
            for waiter, (_, _, deadline) in tuple(self._driver.waits.entries.items())
            if deadline is not None and waiter != self._owner  # which has the time of the world
        ]
        left = [*waits, self._driver.expiry.due() - now]
        return min([*timers, *(self._now + seconds for seconds in left if seconds > 0)], default=math.inf)

    def _go(self, moment: float) -> None:
        """Go to a moment, and let what is due then run, one event loop after the other."""
        # A wait ends when less than nothing is left of it.
        self._driver.clock.advance(moment - self._now + _SAME)
        due = [loop for loop in self._loops() if (when := loop.due()) is not None and when <= moment + _SAME]
        self._now = moment
        self._driver.expiry.look()
        self._driver.wake()
        for loop in due:
            loop.wake()
            self._settle()

    def _settle(self) -> None:
        """Wait until all actors are quiet: twice in a row, and nothing has run meanwhile."""
        deadline = time.monotonic() + _PATIENCE
        before: object = None
        while True:
            for ranks in tuple(self._ranks):
                ranks.deliver()
            self._read()
            mailboxes = self._mailboxes()
            busy = [mailbox.name for mailbox in mailboxes if not mailbox.is_quiet(self._is_waiting)]
            stamp = [(id(mailbox), mailbox.rounds) for mailbox in mailboxes]
            if not busy and not is_readable(self._driver.fileno()):
                if stamp == before:
                    return
                before = stamp
                continue
            before = None
            if time.monotonic() > deadline:
                raise MeshError(
                    f"after {_PATIENCE:g} s these actors are still busy, or wait for what the clock does not control "
                    f"(a thread, a lock, time.sleep): {', '.join(sorted(set(busy)))}"
                )
            self._pause.wait(_LOOK)

    def _read(self) -> None:
        """Wait until the answers that have come are delivered: another thread may have read them."""
        delivered = threading.Event()
        self._driver.queues.when_read(delivered.set)
        while not delivered.wait(_LOOK):
            self._driver.poll_nowait()

    def _go_on(self) -> None:
        """Advance while the thread of the block waits for an answer, until the block ends. A thread of its own."""
        while not self._ended.wait(_LOOK):
            if not self._is_waiting(self._owner):
                continue
            with self._lock:
                try:
                    self._settle()
                except MeshError:  # said by `advance`; a wait has its own time limit
                    continue
                moment = self._next()
                if self._is_waiting(self._owner) and moment < math.inf and not self.released:
                    self._go(max(moment, self._now))

    def _is_waiting(self, thread: int) -> bool:
        """Whether a thread waits for answers that have not come, and its time is not over."""
        entry = self._driver.waits.entries.get(thread)
        if entry is None:
            return False
        pending, _, deadline = entry
        return not pending.finished and (deadline is None or deadline.left() > 0)

    # -- the block

    def begin(self) -> None:
        """Suspend the clock of deadlines, but for the waits of this thread: nobody else could advance it meanwhile."""
        clock = self._driver.clock
        usual = clock.of_thread

        def of_thread() -> Callable[[], float]:
            return time.monotonic if threading.get_ident() == self._owner else usual()

        clock.of_thread = of_thread  # type: ignore[method-assign]  # undone by `end`
        clock.hold(True)
        if self._auto is not None:
            self._auto.start()

    def end(self) -> None:
        """Let time pass by itself, for actors that are left too."""
        self._ended.set()
        if self._auto is not None:
            self._auto.join()
        del self._driver.clock.of_thread  # the method of the class is seen again
        self._driver.clock.hold(False)
        with self._lock:
            self._released_at = time.monotonic()
            self.released = True
            for loop in self._loops():
                loop.wake()
        self._driver.wake()


def current_clock() -> FakeClock | None:
    """Return the clock of the block that runs; None: there is none."""
    return _current


@contextlib.contextmanager
def fake_clock(*, auto: bool = False) -> Iterator[FakeClock]:
    """A clock that the test sets: ``with fake_clock() as clock, local(Poller)``, and in it ``clock.advance(60)``.

    It is the time of the event loops of actors of `local` and `local_mesh` blocks that begin within the block
    (``asyncio.sleep``, ``asyncio.timeout``, ``loop.time()``), and of the time limits of meshrt in this process:
    ``get(timeout)`` off the thread of this block, ``options(timeout=)``, the grace of these blocks. Not of
    ``time.time`` and ``time.sleep``, and not of other processes.

    Args:
        auto: Time also goes on by itself, from moment to moment, while the thread of the block waits for an answer (in
            ``get()``, ``stop()``) and all actors are quiet. Not for answers of other processes: they take time.
    Raises:
        UsageError: Such a block runs already.
    """
    global _current
    if _current is not None:
        raise UsageError("fake_clock: only one clock can be active, and the block of another one runs")
    clock = _current = FakeClock(start_root().runtime.driver, auto=auto)
    clock.begin()
    try:
        yield clock
    finally:
        _current = None
        clock.end()
