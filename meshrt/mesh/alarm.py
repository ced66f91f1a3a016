"""Failures that no owner below the script has handled: the script's next wait for a call is told.

When the main thread has ended by an error, no other thread waits any more: each wait raises.

A failure: ``new -> told`` (an error about one of its ranks was given to a caller), ``-> handled`` (by
`meshrt.unhandled_fault_hook`), ``-> raised`` (at a wait), or ``-> left``: that is reported at the end of the program. A
wait is not interrupted for a mesh that was stopped, nor for ranks that its own error will name.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import msgspec

from meshrt.actor.context import current_call
from meshrt.actor.faults import Lost, lost_ranks
from meshrt.errors import ActorError, MeshError, MeshFailure, ShutdownError, SupervisionError
from meshrt.mesh.future import Future
from meshrt.transport.driver import Driver
from meshrt.transport.pending import Pending
from meshrt.wire.codec import own_attribute

__all__ = ["Alarm"]

#: How many are remembered: lost processes that were reported to a caller; failures in answers that were not read.
_REMEMBERED = 10_000


class _Left(msgspec.Struct, eq=False):
    failure: MeshFailure
    #: Processes that have ended; if there are none and no hook is set, no wait is interrupted.
    lost: set[Lost]
    #: Called when the script is told of the lost ranks only, or of nothing: the rest is reported at the end.
    unseen: Callable[[], None]


class Alarm:
    """The failures that the script is to be told of. Any thread.

    Args:
        driver: Its waits are interrupted.
        stopped: Whether a mesh was stopped.
    """

    def __init__(self, driver: Driver, stopped: Callable[[str], bool]) -> None:
        self._driver = driver
        self._stopped = stopped
        self._lock = threading.Lock()
        self._silent = False
        #: The error that has ended the main thread, if there was one: waits of other threads end then.
        self._ended = ""
        self._left: list[_Left] = []
        #: When a caller was first told that a process has ended, monotonic ns; the oldest first.
        self.told_at: dict[Lost, int] = {}
        #: Numbers of failures in answers that were not read yet, with their calls, the oldest first.
        self._unread: dict[str, tuple[str, str, str]] = {}
        driver.on_error = self._tell
        driver.on_failure = self._answered

    def add(self, failure: MeshFailure, unseen: Callable[[], None]) -> None:
        """Tell the script at its next wait.

        Args:
            unseen: Called if no hook handles it: exceptions that no caller waits for are reported at the end.
        """
        lost = {each for error in failure.errors for each in lost_ranks(error)}
        with self._lock:
            told = bool(lost & self.told_at.keys())
        if told or (not lost and _hook() is None):
            unseen()
            return
        with self._lock:
            self._left.append(_Left(failure, lost, unseen))
            silent = self._silent
        if not silent:
            self._driver.alert(self._at_wait)

    def told(self, lost: Lost) -> None:
        """Note that a caller was given an error that says that this process has ended."""
        with self._lock:
            self.told_at.setdefault(lost, time.monotonic_ns())
            while len(self.told_at) > _REMEMBERED:
                del self.told_at[next(iter(self.told_at))]
            over = [left for left in self._left if lost in left.lost]
            self._left = [left for left in self._left if lost not in left.lost]
        for left in over:
            left.unseen()

    def _tell(self, error: BaseException) -> None:
        for lost in lost_ranks(error):
            self.told(lost)
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            if issubclass(type(current), ActorError):
                self._read(current)  # type: ignore[arg-type]  # it is an ActorError
            current = own_attribute(current, "__cause__") or own_attribute(current, "__context__")

    def _read(self, error: ActorError) -> None:
        with self._lock:
            for each in (error, *error.others):
                self._unread.pop(each.remote.failure, None)
            if error.endpoint == "__init__":
                # Each call to the actor reports it, by the error of the first rank.
                call = (error.place.mesh_id, error.place.actor, error.endpoint)
                for failure in [failure for failure, other in self._unread.items() if other == call]:
                    del self._unread[failure]

    def _answered(self, failure: str, call: tuple[str, str, str]) -> None:
        with self._lock:
            self._unread[failure] = call
            while len(self._unread) > _REMEMBERED:
                del self._unread[next(iter(self._unread))]

    @property
    def unread(self) -> list[str]:
        """The numbers of failures whose answers the script has received and never read."""
        with self._lock:
            return list(self._unread)

    def end_waits(self, why: str) -> None:
        """The main thread has ended by an error: end the waits of other threads (not of daemons), now and later."""
        self._ended = why
        self._driver.alert(self._at_wait)

    def _end_wait(self, pending: Pending) -> None:
        ends = isinstance(pending, Future) and pending.tells and not threading.current_thread().daemon
        if self._ended and ends and threading.current_thread() is not threading.main_thread():
            raise ShutdownError(
                "other threads cannot wait for ranks any more: the main thread of the script has ended with "
                f"{self._ended}"
            )

    def _at_wait(self, pending: Pending) -> None:
        self._end_wait(pending)
        if not pending.disturbable or current_call() is not None:
            return  # the runtime's own, or that of an actor in this process
        with self._lock:
            due = next((left for left in self._left if self._disturbs(left, pending)), None)
            if due is None:
                if not self._left and not self._ended:
                    self._driver.alarm = None
                return
            self._left.remove(due)
        self._driver.alert(self._at_wait)  # there may be more
        for lost in due.lost:
            self.told(lost)
        hook = _hook()
        if hook is not None:
            hook(due.failure)
            return
        due.unseen()
        if due.lost:
            raise _disturbing(due.failure)

    def _disturbs(self, left: _Left, pending: Pending) -> bool:
        return not any(pending.owed_by(mesh_id, rank) or self._stopped(mesh_id) for mesh_id, rank, _ in left.lost)

    @property
    def silent(self) -> bool:
        """Whether waits are no longer interrupted: the program ends."""
        return self._silent

    def silence(self) -> None:
        """Interrupt no wait from now on."""
        with self._lock:
            self._silent = True
        self._driver.alarm = None

    def close(self) -> list[MeshFailure]:
        """Return the failures with lost ranks that no caller was told of. After `silence`."""
        with self._lock:
            left, self._left = self._left, []
        for each in left:
            each.unseen()
        return [each.failure for each in left if each.lost]


def _disturbing(failure: MeshFailure) -> MeshError:
    """Return the error of a failure, for a wait that is for something else."""
    error = failure.error
    if isinstance(error, SupervisionError):
        error.mesh_name = failure.mesh_name
    error.add_note(
        "The call that this line waits for has not failed, and goes on: get() it again. Ranks were lost, as above, and "
        "nothing has handled that yet: so the next wait tells of it. __supervise__() of their owner, or "
        "meshrt.unhandled_fault_hook, can handle it instead (docs/supervision.md)."
    )
    return error


def _hook() -> Callable[[MeshFailure], object] | None:
    hook: Callable[[MeshFailure], object] | None = sys.modules["meshrt"].unhandled_fault_hook
    return hook
