"""Failures that no owner below the script has handled: the hook of the script, or its next wait for a call, is told.

When the main thread has ended by an error, no other thread waits any more: each wait raises.

A failure: ``new -> told`` (an error about one of its ranks was given to a caller in the script), ``-> handled`` (by
`meshrt.unhandled_fault_hook`, on a thread of its own, at once), ``-> raised`` (at a wait), or ``-> left``: that is
reported at the end of the program. What the hook raises is raised at the next wait. A wait is not interrupted for a
mesh that was stopped, nor for ranks that its own error will name.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from meshrt.actor.context import current_call
from meshrt.actor.faults import Lost, lost_ranks
from meshrt.errors import ActorAborted, ActorError, MeshError, MeshFailure, ShutdownError, SupervisionError, UsageError
from meshrt.hooks.facts import UnreadError
from meshrt.mesh.future import Future
from meshrt.transport.driver import Driver
from meshrt.transport.pending import Pending
from meshrt.wire.codec import own_attribute

__all__ = ["Alarm"]

#: How many are remembered: lost processes that were reported to a caller; failures in answers that were not read.
_REMEMBERED = 10_000
#: How many errors are known to be read: those of the latest seconds, which may be in one incident.
_READ = 1000
#: How many wait for the hook; it does not come back, and what comes beyond is as if there were none.
_WAITING_MAX = 1000
#: Seconds for which the end of the program waits for the hook.
_HOOK_ENDS = 1.0


class _Left(msgspec.Struct, eq=False):
    failure: MeshFailure
    #: Processes that have ended; if there are none and no hook is set, no wait is interrupted.
    lost: set[Lost]
    #: Called when the script is told of the lost ranks only, or of nothing: the rest is reported at the end.
    unseen: Callable[[], None]
    #: No wait raises it.
    quiet: bool
    #: What the hook has raised.
    raised: BaseException | None = None


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
        self._hook_ended = False
        #: The error that has ended the main thread, if there was one: waits of other threads end then.
        self._ended = ""
        self._left: list[_Left] = []
        #: When a caller, in any process, was first told that a process has ended, monotonic ns; the oldest first.
        self._told_at: dict[Lost, int] = {}
        #: When a caller in the script was given the error of a failure, by its number, likewise.
        self._read_at: dict[str, int] = {}
        #: Of which ends callers in the script were told, the oldest first.
        self._known: dict[Lost, None] = {}
        #: For the hook, which one thread calls; it ends when there is nothing to do.
        self._hooked: deque[_Left] = deque()
        self._hooking: threading.Thread | None = None
        #: The failures in answers that were not read yet, by their numbers, the oldest first.
        self.unread: dict[str, UnreadError] = {}
        #: Numbers of failures that the hook has handled, the oldest first: their answers need not be read.
        self._handled: dict[str, None] = {}
        driver.on_error = self._tell
        driver.on_failure = self._answered

    def add(self, failure: MeshFailure, unseen: Callable[[], None], *, quiet: bool = False) -> None:
        """Tell the script: its hook at once, or its next wait. Any thread.

        Args:
            quiet: The script does not own what has failed: no wait raises it, but the hook is called.
            unseen: Called if no hook handles it: exceptions that no caller waits for are reported at the end.
        """
        lost = {each for error in failure.errors for each in lost_ranks(error)}
        left = _Left(failure, lost, unseen, quiet)
        with self._lock:
            # Processes that end together do so for one reason; actors that abort have a reason each.
            processes = {each for each in lost if each[0] == _mesh_of(each)}
            told = bool(processes & self._known.keys()) or (bool(lost) and lost <= self._known.keys())
            # A singleton that has died was stopped by the next that has asked for it.
            over = not quiet and any(self._stopped(_mesh_of(each)) for each in lost)
            full = len(self._hooked) >= _WAITING_MAX
            hooks = not (told or over or full or self._hook_ended) and _hook() is not None
            if hooks:
                self._hooked.append(left)
                if self._hooking is None:
                    self._hooking = threading.Thread(target=self._call_hook, name="meshrt-fault-hook", daemon=True)
                    self._hooking.start()
        if told or (not lost and not hooks):
            unseen()
        elif not hooks:
            self._leave(left)

    def _leave(self, left: _Left) -> None:
        with self._lock:
            self._left.append(left)
            silent = self._silent
        if not silent:
            self._driver.alert(self._at_wait)

    def _call_hook(self) -> None:
        while True:
            with self._lock:
                if not self._hooked:
                    self._hooking = None
                    return
                left = self._hooked[0]  # it stays there while the hook runs
            hook, handled = _hook(), False
            try:
                if hook is not None:
                    _check(hook(left.failure))
                    self._note_handled(left.failure)
                    handled = True
            except BaseException as error:  # also sys.exit: it is to end the script, not this thread
                left.raised = error
            with self._lock:
                kept = bool(self._hooked) and self._hooked.popleft() is left  # else the program has ended meanwhile
            if kept and not handled:
                self._leave(left)

    def noted(self, lost: Lost) -> None:
        """Note that a caller in any process was given an error that says that this process has ended."""
        with self._lock:
            self._told_at.setdefault(lost, time.monotonic_ns())
            while len(self._told_at) > _REMEMBERED:
                del self._told_at[next(iter(self._told_at))]

    def when_told(self, what: Lost | str) -> int:
        """Return when a caller was first given an error: about a lost process, or in the script the one of this number.

        In monotonic ns; 0: not yet.
        """
        return self._read_at.get(what, 0) if isinstance(what, str) else self._told_at.get(what, 0)

    def told(self, lost: Lost) -> None:
        """Note that a caller in the script was."""
        self.noted(lost)
        with self._lock:
            self._known[lost] = None
            while len(self._known) > _REMEMBERED:
                del self._known[next(iter(self._known))]
            over = [left for left in self._left if lost in left.lost and left.raised is None]
            self._left = [left for left in self._left if left not in over]
        for left in over:
            left.unseen()

    def _tell(self, error: BaseException) -> None:
        for lost in lost_ranks(error):
            self.told(lost)
        seen: set[int] = set()
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            if issubclass(type(current), ActorAborted):
                with self._lock:
                    self.unread.pop(own_attribute(current, "__dict__").get("failure", ""), None)
            if issubclass(type(current), ActorError):
                self._read(current)  # type: ignore[arg-type]  # it is an ActorError
            current = own_attribute(current, "__cause__") or own_attribute(current, "__context__")

    def _read(self, error: ActorError) -> None:
        with self._lock:
            for each in (error, *error.others):
                self.unread.pop(each.remote.failure, None)
                self._read_at.setdefault(each.remote.failure, time.monotonic_ns())
            self._trim_read()
            if error.endpoint == "__init__":
                # Each call to the actor reports it, by the error of the first rank.
                call = (error.place.mesh_id, error.place.actor, error.endpoint)
                for failure, other in tuple(self.unread.items()):
                    if (other.mesh_id, other.actor, other.endpoint) == call:
                        del self.unread[failure]

    def _trim_read(self) -> None:
        while len(self._read_at) > _READ:
            del self._read_at[next(iter(self._read_at))]

    def _note_handled(self, failure: MeshFailure) -> None:
        with self._lock:
            for error in failure.errors:
                number = error.remote.failure if isinstance(error, ActorError) else getattr(error, "failure", "")
                self.unread.pop(number, None)
                self._handled[number] = None
            while len(self._handled) > _REMEMBERED:
                del self._handled[next(iter(self._handled))]

    def _answered(self, failure: str, unread: UnreadError, given: int) -> None:
        with self._lock:
            if given:  # who has dealt with an error of the call has dealt with this one, too
                self._read_at[failure] = given
                self._trim_read()
            if given or failure in self._handled:
                return
            self.unread[failure] = unread
            while len(self.unread) > _REMEMBERED:
                del self.unread[next(iter(self.unread))]

    def take_unread(self) -> list[UnreadError]:
        """Return the errors in answers that the script has received and not read; they count as read from then on."""
        with self._lock:
            taken = list(self.unread.values())
            self.unread.clear()
        return taken

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
        if due.raised is not None:
            due.unseen()
            raise due.raised
        hook = _hook()
        if hook is not None:
            _check(hook(due.failure))
            self._note_handled(due.failure)
            return
        due.unseen()
        if due.lost:
            raise _disturbing(due.failure)

    def _disturbs(self, left: _Left, pending: Pending) -> bool:
        if left.raised is not None:
            return threading.current_thread() is threading.main_thread()
        if left.quiet and _hook() is None:
            return False
        return not any(
            pending.owed_by(each[0], each[1]) or (not left.quiet and self._stopped(_mesh_of(each)))
            for each in left.lost
        )

    @property
    def silent(self) -> bool:
        """Whether waits are no longer interrupted: the program ends."""
        return self._silent

    def silence(self) -> None:
        """Interrupt no wait from now on."""
        with self._lock:
            self._silent = True
        self._driver.alarm = None

    def end_hook(self) -> None:
        """Call the hook for no further failure: what fails from now on comes from the end of the program."""
        with self._lock:
            self._hook_ended = True

    def close(self) -> list[MeshFailure]:
        """Return the failures with lost ranks that the script was not told of. After `silence`."""
        hooking = self._hooking
        if hooking is not None and hooking is not threading.current_thread():
            hooking.join(_HOOK_ENDS)
        with self._lock:
            left = [*self._left, *self._hooked]
            self._left = []
            self._hooked.clear()
        for each in left:
            each.unseen()
        return [each.failure for each in left if self._is_untold(each)]

    def _is_untold(self, left: _Left) -> bool:
        # Of a process that the script does not own, its callers anywhere are those who are to be told.
        told = left.quiet and left.lost <= self._told_at.keys()
        return left.raised is not None or (bool(left.lost) and not told)


def _disturbing(failure: MeshFailure) -> MeshError:
    """Return the error of a failure, for a wait that is for something else."""
    error = failure.error
    if isinstance(error, SupervisionError):
        error.mesh_name = failure.mesh_name
    error.add_note(
        "This is an earlier, unhandled failure, raised at the next get(): the operation of this line has not failed, "
        "and you can wait for it again. To handle such failures, use __supervise__() of the owner or "
        "meshrt.unhandled_fault_hook (docs/supervision.md)."
    )
    return error


def _mesh_of(lost: Lost) -> str:
    return lost[0].partition("/")[0]


def _check(result: object) -> None:
    """Raise UsageError if a hook was not called whole."""
    if inspect.iscoroutine(result):
        result.close()
        raise UsageError("meshrt.unhandled_fault_hook must be a plain function: an async function is not awaited")


def _hook() -> Callable[[MeshFailure], object] | None:
    hook: Callable[[MeshFailure], object] | None = sys.modules["meshrt"].unhandled_fault_hook
    return hook
