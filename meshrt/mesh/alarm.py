"""What has failed and nobody below the script has handled: its next wait for a call is told.

A failure: ``new -> told`` (an error about one of its ranks was raised to somebody), ``-> handled`` (by
`meshrt.unhandled_fault_hook`), ``-> raised`` (at a wait), or ``-> left``: that is reported at the end of the program. A
wait is not disturbed by a mesh that was stopped, nor by ranks that it will be told of by its own error.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from meshrt.errors import ActorError, MeshFailure, SupervisionError
from meshrt.transport.driver import Driver
from meshrt.transport.waiting import Pending
from meshrt.wire.codec import own_attribute

__all__ = ["Alarm"]

#: Lost ranks of which the script was told that are remembered: their failure may be known later than the error.
_REMEMBERED = 10_000


@dataclass(eq=False)
class _Left:
    failure: MeshFailure
    #: Ranks that are gone, by mesh; without any, no wait is disturbed for want of a hook.
    lost: set[tuple[str, int]]
    unhandled: Callable[[], None]


class Alarm:
    """The failures that the script is to be told of. Any thread.

    Args:
        driver: Its waits are disturbed.
        stopped: Whether a mesh was stopped.
    """

    def __init__(self, driver: Driver, stopped: Callable[[str], bool]) -> None:
        self._driver = driver
        self._stopped = stopped
        self._lock = threading.Lock()
        self._left: list[_Left] = []
        self._told: dict[tuple[str, int], None] = {}
        #: Numbers of failures in answers that nobody has looked at yet, the oldest first.
        self._unread: dict[str, tuple[str, str, str]] = {}
        driver.on_error = self._tell
        driver.on_failure = self._answered

    def add(self, failure: MeshFailure, unhandled: Callable[[], None]) -> None:
        """Tell the script at its next wait.

        Args:
            unhandled: Called if there is no hook that handles it, and no rank is gone: it is reported at the end.
        """
        lost = {
            (error.place.mesh_id, error.place.rank) for error in failure.errors if isinstance(error, SupervisionError)
        }
        if not lost and _hook() is None:
            unhandled()
            return
        with self._lock:
            if lost & self._told.keys():
                return
            self._left.append(_Left(failure, lost, unhandled))
        self._driver.alert(self._at_wait)

    def told(self, mesh_id: str, rank: int) -> None:
        """Somebody has been told that the rank is gone, by the error of a call."""
        with self._lock:
            self._told[mesh_id, rank] = None
            while len(self._told) > _REMEMBERED:
                del self._told[next(iter(self._told))]
            self._left = [left for left in self._left if (mesh_id, rank) not in left.lost]

    def _tell(self, error: BaseException) -> None:
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            if issubclass(type(current), ActorError):
                self._read(current)  # type: ignore[arg-type]  # it is an ActorError
            elif isinstance(current, SupervisionError):
                for place in (current.place, *current.others):
                    self.told(place.mesh_id, place.rank)
            current = own_attribute(current, "__cause__") or own_attribute(current, "__context__")

    def _read(self, error: ActorError) -> None:
        for each in (error, *error.others):
            self._unread.pop(each.remote.failure, None)
        if error.endpoint == "__init__":
            # Each call to the actor tells of it, by the error of whichever rank is first.
            call = (error.place.mesh_id, error.place.actor, error.endpoint)
            for failure in [failure for failure, other in tuple(self._unread.items()) if other == call]:
                self._unread.pop(failure, None)

    def _answered(self, failure: str, call: tuple[str, str, str]) -> None:
        self._unread[failure] = call
        while len(self._unread) > _REMEMBERED:
            del self._unread[next(iter(self._unread))]

    @property
    def unread(self) -> list[str]:
        """The numbers of failures of which the script was sent an answer that it has never looked at."""
        return list(self._unread)

    def _at_wait(self, pending: Pending) -> None:
        with self._lock:
            due = next((left for left in self._left if self._disturbs(left, pending)), None)
            if due is None:
                if not self._left:
                    self._driver.alarm = None
                return
            self._left.remove(due)
        hook = _hook()
        if hook is not None:
            hook(due.failure)
        elif due.lost:
            raise due.failure.error
        else:
            due.unhandled()
        self._driver.alert(self._at_wait)  # there may be more

    def _disturbs(self, left: _Left, pending: Pending) -> bool:
        return not any(pending.owed_by(*address) or self._stopped(address[0]) for address in left.lost)

    def close(self) -> list[MeshFailure]:
        """Disturb nobody any more; return the failures with lost ranks that the script was not told of."""
        self._driver.alarm = None
        with self._lock:
            left, self._left = self._left, []
        for each in left:
            if not each.lost:
                each.unhandled()
        return [each.failure for each in left if each.lost]


def _hook() -> Callable[[MeshFailure], object] | None:
    hook: Callable[[MeshFailure], object] | None = sys.modules["meshrt"].unhandled_fault_hook
    return hook
