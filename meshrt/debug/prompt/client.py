"""Terminal side: one connection to a program's broker.

The prompt's thread makes the requests. Events arrive on the connection's reader thread, which only sorts them into
queues and calls `Client.on_change`; everything else happens on the prompt's thread.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from meshrt.debug.operations import Asked, AttachedReport, Count, Greeting, Hello, JobReport, Notice
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Connection, Data, Operation

__all__ = ["LOOK_SECONDS", "Client", "next_of"]

A = TypeVar("A", bound=Data)
T = TypeVar("T")

#: Limit for the first answer. It is long so that an overloaded machine does not force the user to try again.
_GREETING_SECONDS = 60.0
#: Most seconds of one wait of the main thread (`next_of`).
LOOK_SECONDS = 0.2


class Client:
    """The debugger's requests, and the queues of the events that come back later.

    The connection looks at the program at first. `greet`, or the first request that needs the debugger, makes it a
    terminal of the debugger, which is loaded in the program by that.

    Args:
        connect: Makes the connection from (on_event, on_close).
        person: Whether a person reads the notices.
        listens: Whether a program reads the notices.
        goes: The number of the IDE session whose end deletes the breakpoints that are set here; 0: they stay.
    """

    def __init__(
        self,
        connect: Callable[[Callable[[str, Body], None], Callable[[], None]], Connection],
        *,
        person: bool,
        listens: bool = False,
        goes: int = 0,
    ) -> None:
        #: Called on the reader thread after each event, other than a notice, that concerns the prompt.
        self.on_change: Callable[[], None] = lambda: None
        self.goes = goes
        self._closed = False
        self._hello = Hello(person=person, listens=listens)
        self._greeted = False
        #: One line for each actor that had stopped ranks when the terminal was greeted.
        self.stops: list[str] = []
        #: The line that runs now: the broker shows it at other terminals.
        self.typed = ""
        #: How many ranks are stopped, and how many were resumed and may stop again.
        self.stopped = 0
        self.resumed = 0
        self._counted = False
        #: Events of the attached session; None: the program has closed the connection.
        self.attached: queue.SimpleQueue[AttachedReport | None] = queue.SimpleQueue()
        self._jobs: dict[int, queue.SimpleQueue[JobReport | None]] = {}
        self._forgotten = 0
        self._lock = threading.Lock()
        self._on_notice: Callable[[str], None] | None = None
        self._early: list[str] = []
        self._connection = connect(self._event, self._close)
        self.pid = self._connection.pid

    def greet(self) -> None:
        """Tell the debugger that the terminal is there, and take in which ranks are stopped; once.

        Raises: As `ask` does.
        """
        if self._greeted:
            return
        greeting = self._connection.ask(self._hello, _GREETING_SECONDS)
        self._greeted = True
        self.stops = list(greeting.stops)
        with self._lock:
            if not self._counted:
                self._count(greeting)

    def closed(self) -> bool:
        """Whether the program has closed the connection. Any thread."""
        return self._closed

    def ask(self, operation: Operation[A], timeout: float = 10.0) -> A:
        """Ask the program, for at most ``timeout`` seconds; greet the debugger first if it is asked.

        Raises:
            MeshError: The broker refused; the text says why.
            ConnectionError: The connection is closed.
            TimeoutError: No answer in time.
        """
        if isinstance(operation, Asked):
            self.greet()
            operation = replace(operation, typed=self.typed)
        return self._connection.ask(operation, timeout)

    def reports(self, job: int) -> queue.SimpleQueue[JobReport | None]:
        """Return the queue of a job's reports; None in it: no more will come, the connection is closed."""
        with self._lock:
            reports = self._jobs.setdefault(job, queue.SimpleQueue())
            if self._closed:
                reports.put(None)
            return reports

    def forget(self, job: int) -> None:
        """Drop the queue of a job; later reports of it are dropped too."""
        with self._lock:
            self._jobs.pop(job, None)
            self._forgotten = max(self._forgotten, job)

    def read_notices(self, read: Callable[[str], None]) -> None:
        """Pass notices to ``read``: those that have come already now, later ones on the reader thread."""
        with self._lock:
            self._on_notice = read
            early, self._early = self._early, []
        for text in early:
            read(text)

    def mute(self) -> None:
        """Drop all later notices, and call `on_change` no more."""
        self.read_notices(lambda text: None)
        self.on_change = lambda: None

    def close(self) -> None:
        """Close the connection; nothing changes for the ranks."""
        self._connection.close()

    # -- reader thread

    def _event(self, event: str, body: Body) -> None:
        if event == Notice.name():
            text = Notice.read(body).text
            with self._lock:
                read = self._on_notice
                if read is None:
                    self._early.append(text)
            if read is not None:
                read(text)
        elif event == AttachedReport.name():
            self.attached.put(AttachedReport.read(body))
            self.on_change()
        elif event == JobReport.name():
            report = JobReport.read(body)
            # Job numbers ascend: a late report of a forgotten job is dropped.
            if report.job > self._forgotten:
                self.reports(report.job).put(report)
        elif event == Count.name():
            with self._lock:
                self._counted = True
                self._count(Count.read(body))
            self.on_change()

    def _count(self, counts: Count | Greeting) -> None:
        self.stopped, self.resumed = counts.stopped, counts.resumed

    def _close(self) -> None:
        self._closed = True
        self.attached.put(None)
        with self._lock:
            for reports in self._jobs.values():
                reports.put(None)
        self.on_change()


def next_of(reports: queue.SimpleQueue[T], until: float) -> T:
    """Take the next one from a queue. For the main thread, which Ctrl-C interrupts.

    A signal that comes just before a wait begins does not end that wait, and is seen behind it: so no wait is long.

    Args:
        until: When the wait is over (monotonic).
    Raises:
        queue.Empty: None has come until then.
    """
    while (left := until - time.monotonic()) > LOOK_SECONDS:
        with contextlib.suppress(queue.Empty):
            return reports.get(timeout=LOOK_SECONDS)
    return reports.get(timeout=max(0.0, left))
