"""The exceptions of meshrt, split by blame: caller, user code, failed process, protocol.

::

    MeshError
    |- UsageError                 the caller's own mistake, nothing was sent
    |  |- NotAnEndpointError      (RuntimeError) the method carries no @endpoint
    |  |- InvalidEndpoint         (ValueError) a decorator cannot make an endpoint of what it decorates
    |  |- SelectionError          (ValueError) a set of ranks that does not parse or does not exist
    |  |- ForkedMeshError         a mesh was used in a forked child of its owner
    |  `- ArgumentNotSerializable (TypeError) an argument cannot be pickled
    |- ActorError                 user code on a rank raised
    |  `- ResultNotSerializable   the endpoint ran, its result cannot be pickled or read
    |- SupervisionError           (RuntimeError) a rank, an actor or a host is gone
    |  |- ProcessDied             the process ended: exit code or signal
    |  |- HostLost                the host agent ended, and its ranks with it
    |  |- LinkLost                the connection broke although the process lives
    |  |- MeshStopped             stop() was called
    |  `- ActorAborted            the actor has ended itself by abort()
    |- LimitReached               as many calls are unanswered as `Endpoint.options` allows
    |- Disconnected               the connection to another program has ended, maybe with that program
    |- MeshBusy                   too much waits to be sent to a rank: an event loop is refused a call
    |- PortClosed                 the receiver of a port takes nothing any more, or nothing was sent to it
    |- SpawnError                 (RuntimeError) the processes could not be started
    |- StoreFull                  no shared memory is left for an object
    |- StoreTimeout               (TimeoutError) the agent of a host does not answer what concerns shared memory
    |- ReferenceLost              the object of a reference is gone
    |- CallCancelled              the caller cancelled its call
    |- CallTimeout                (TimeoutError) ranks that have not answered
    |- ProtocolError              foreign, broken or oversized bytes
    |  `- AuthenticationError     the peer does not hold the secret
    `- ShutdownError              the runtime is closing

Facts are attributes, text is made in ``__str__``. Every class survives pickling.
"""

from __future__ import annotations

import signal as _signal
import sys
import time as _time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from meshrt.escapes import escaped
from meshrt.files import FAULTHANDLER_HIDES, users_part
from meshrt.origins import RankPlace, RemoteException
from meshrt.ranks import fold_ranks

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    class _Facts(TypedDict, total=False):  # what each `SupervisionError` takes
        endpoint: str
        may_have_run: bool
        log_tail: Sequence[str]
        others: Sequence[RankPlace]


__all__ = [
    "ActorAborted",
    "ActorError",
    "ArgumentNotSerializable",
    "AuthenticationError",
    "CallCancelled",
    "CallTimeout",
    "DebugAdapterError",
    "Disconnected",
    "ForkedMeshError",
    "HostLost",
    "InvalidEndpoint",
    "LimitReached",
    "LinkLost",
    "MeshBusy",
    "MeshError",
    "MeshFailure",
    "MeshStopped",
    "NotAnEndpointError",
    "PortClosed",
    "ProcessDied",
    "ProtocolError",
    "RankPlace",
    "ReferenceLost",
    "RemoteException",
    "ResultNotSerializable",
    "SelectionError",
    "ShutdownError",
    "SpawnError",
    "StoreFull",
    "StoreTimeout",
    "SupervisionError",
    "UsageError",
    "describe_exit",
    "last_lines",
    "one_line",
    "user_stack",
]


def _rebuild(cls: type[MeshError], args: tuple[object, ...], state: dict[str, object]) -> MeshError:
    error = cls.__new__(cls)
    Exception.__init__(error, *args)
    error.__dict__.update(state)
    return error


#: Most characters of an error in a line that shows several.
_REPR = 300


class MeshError(Exception):
    """Base class of all errors that meshrt itself raises."""

    #: When the call was sent that it is about, monotonic ns; 0 if it is about none.
    sent = 0

    def __repr__(self) -> str:
        first_line = str(self).partition("\n")[0]
        return f"{type(self).__name__}({one_line(first_line, _REPR)!r})"

    def _render_traceback_(self) -> list[str]:
        # IPython and Jupyter ask an exception for its traceback, and make it themselves if that fails.
        shell = sys.modules["IPython"].get_ipython()
        lines: list[str] = shell.InteractiveTB.structured_traceback(type(self), self, users_part(self.__traceback__))
        return lines

    def __reduce__(self) -> tuple[object, ...]:
        # `sent` is a time on the clock of this process's machine: it means nothing elsewhere.
        state = {name: value for name, value in self.__dict__.items() if name != "sent"}
        return _rebuild, (type(self), self.args, state)


#: Finds the record of a failure: by its number (or ""), mesh id and base rank. Set in the process of the script.
find_record: Callable[[str, str, int], Any] | None = None


def _ranks_of(places: Sequence[RankPlace]) -> str:
    return fold_ranks(place.rank for place in places)


class _AtRank:
    """An error with the place of a rank."""

    place: RankPlace

    @property
    def rank(self) -> int:
        """The base rank that it is about."""
        return self.place.rank


class _OfRank(_AtRank):
    """An error that is about the failure of a rank."""

    @property
    def record(self) -> Any:
        """All that is known of the failure (`meshrt.failure.record.FailureRecord`); None where nothing is.

        In the script only. Waits for up to a second: the record takes another way than the error.
        """
        number = getattr(getattr(self, "remote", None), "failure", "")
        return find_record(number, self.place.mesh_id, self.place.rank) if find_record is not None else None


class UsageError(MeshError):
    """The caller asked for something that is not possible; nothing was sent."""


class NotAnEndpointError(UsageError, RuntimeError):
    """The attribute exists on the actor class, but carries no ``@endpoint``."""


class InvalidEndpoint(UsageError, ValueError):
    """``@endpoint`` or ``@concurrent_endpoint`` cannot make an endpoint of what it decorates."""


class ForkedMeshError(UsageError):
    """A mesh was used in a forked child; it belongs to the process that made it."""


class ArgumentNotSerializable(UsageError, TypeError):
    """An argument of a call cannot be pickled; nothing was sent."""


class SelectionError(UsageError, ValueError):
    """A selection of ranks is malformed, or names what does not exist.

    Attributes:
        problem: What is wrong, in the user's words.
        text: The whole text that was parsed ("" when there was none).
        span: ``(start, end)`` offsets in ``text`` that the problem points at.
        expected: What would have been accepted there, e.g. ``("a rank", "a dimension")``.
    """

    def __init__(
        self, problem: str, *, text: str = "", span: tuple[int, int] = (0, 0), expected: Sequence[str] = ()
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.text = text
        self.span = span
        self.expected: tuple[str, ...] = tuple(expected)

    def __str__(self) -> str:
        lines = [self.problem]
        if self.text:
            start, end = self.span
            lines += [f"  {self.text}", "  " + " " * start + "^" * max(1, end - start)]
        if self.expected:
            lines.append("  expected " + _one_of(self.expected))
        return "\n".join(lines)


def _one_of(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


class ActorError(_OfRank, MeshError):
    """An endpoint, an ``__init__`` or a set-up function raised on a rank.

    Attributes:
        place: Which rank.
        endpoint: ``"step"``, ``"__init__"`` ...
        remote: The exception as data, always there.
        exception: The exception object itself, or None where it could not be pickled.
        others: Those of the further ranks that had raised by then, as data; in the order of the ranks.
    """

    others: tuple[ActorError, ...] = ()
    #: What they raised, in a few lines.
    others_text: str = ""

    def __init__(
        self, place: RankPlace, endpoint: str, remote: RemoteException, exception: BaseException | None = None
    ) -> None:
        super().__init__(str(place), endpoint, remote.type, remote.message)
        self.place = place
        self.endpoint = endpoint
        self.remote = remote
        self.exception = exception

    def __reduce__(self) -> tuple[object, ...]:
        # The original may be a class that pickles here and fails to load there; the data never does.
        return _rebuild, (type(self), self.args, {**self.__dict__, "exception": None})

    def __str__(self) -> str:
        call = f"{self.place.actor or 'actor'}.{self.endpoint}()"
        if not self.endpoint.isidentifier():  # a thread, a task
            call = f"{self.endpoint} of {self.place.actor}" if self.place.actor else self.endpoint
        head = f"{call} raised on {self.place.where}: {_headline(self.remote)}"
        text = f"{head}\n\n{self.remote.traceback.rstrip()}" if self.remote.traceback else head
        return f"{text}\n\n{self.others_text}" if self.others_text else text


def _headline(remote: RemoteException) -> str:
    return f"{remote.type}: {remote.message}" if remote.message else remote.type


class ResultNotSerializable(ActorError, TypeError):
    """The endpoint ran to its end, but its result cannot be pickled, or cannot be read here."""

    def __str__(self) -> str:
        call = f"{self.place.actor}.{self.endpoint}()"
        return f"{call} ran on {self.place.where}, but its result could not be sent: {_headline(self.remote)}"


class SupervisionError(_OfRank, MeshError, RuntimeError):
    """A rank can no longer answer.

    Attributes:
        place: Which rank.
        may_have_run: False when the call surely never started there.
        log_tail: The last lines that the rank printed.
        others: The further ranks lost at the same time, if any.
        mesh_name: The name of its mesh, where no call to it says which one is meant; or "".
    """

    mesh_name = ""

    def __init__(
        self,
        place: RankPlace,
        *,
        endpoint: str = "",
        may_have_run: bool = True,
        log_tail: Sequence[str] = (),
        others: Sequence[RankPlace] = (),
    ) -> None:
        super().__init__(str(place), endpoint)
        self.place = place
        self.endpoint = endpoint
        self.may_have_run = may_have_run
        self.log_tail: tuple[str, ...] = tuple(log_tail)
        self.others: tuple[RankPlace, ...] = tuple(others)

    def _what(self) -> str:
        return "has ended"

    def __str__(self) -> str:
        if self.endpoint:
            ran = "may have run" if self.may_have_run else "did not run"
            call = f"{self.place.actor}.{self.endpoint}()" if self.place.actor else f"{self.endpoint}()"
            text = f"{call} failed: {self.place.where} {self._what()} (the call {ran})"
        else:
            text = f"{self.place} {self._what()}"
            if self.mesh_name:
                text = f"{self.mesh_name} {text}"
        if self.others:
            text += f"; also lost: {'rank' if len(self.others) == 1 else 'ranks'} {_ranks_of(self.others)}"
        return text + last_lines(self.log_tail)


class ProcessDied(SupervisionError):
    """The process of a rank ended.

    Attributes:
        exit_code: The exit code, or None when a signal ended it.
        signal: The signal's number, or None.
        stack: What faulthandler wrote when it crashed ("" if nothing).
        hint: Further evidence, such as a risen out-of-memory counter.
    """

    def __init__(
        self,
        place: RankPlace,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        stack: str = "",
        hint: str = "",
        **facts: Unpack[_Facts],
    ) -> None:
        super().__init__(place, **facts)
        self.exit_code = exit_code
        self.signal = signal
        self.stack = stack
        self.hint = hint

    def _what(self) -> str:
        return describe_exit(self.exit_code, self.signal) + (f" ({self.hint})" if self.hint else "")

    def __str__(self) -> str:
        return super().__str__() + (f"\n{user_stack(self.stack)}" if self.stack else "")


def last_lines(lines: Sequence[str]) -> str:
    """Return what a process printed last, as the end of an error's text."""
    return "".join(["\nits last lines:", *(f"\n  | {line}" for line in lines)]) if lines else ""


def user_stack(stack: str) -> str:
    """Return the crashed thread's user frames out of what faulthandler wrote."""
    head, _, rest = stack.partition("Current thread ")
    if not rest:
        return stack.rstrip()
    lines = rest.partition("\n\n")[0].splitlines()
    frames = [line for line in lines[1:] if not any(name in line for name in FAULTHANDLER_HIDES)]
    what = head.partition("\n")[0] if head.startswith("Fatal") else "stack"
    return "\n".join([f"{what} (most recent call first):", *(frames or lines[1:])])


def one_line(text: str, most: int) -> str:
    """Return ``text`` in one line that cannot act on a terminal; its end is left out if it is long."""
    line = escaped(text.strip()[: 2 * most].replace("\n", " ").replace("\t", " "))
    return line if len(line) <= most else line[: most - 4] + " ..."


def describe_exit(exit_code: int | None, signal: int | None) -> str:
    """Say how a process ended: ``"was killed by SIGKILL"``, ``"exited with code 3"``."""
    if signal is not None:
        try:
            return f"was killed by {_signal.Signals(signal).name}"
        except ValueError:
            return f"was killed by signal {signal}"
    if exit_code is None:
        return "has ended"
    return f"exited with code {exit_code}"


class HostLost(SupervisionError):
    """The agent of a host ended, or its machine no longer responds; every rank of that host ended with it.

    Attributes:
        hint: Why, if that is known.
    """

    def __init__(self, place: RankPlace, *, hint: str = "", **facts: Unpack[_Facts]) -> None:
        super().__init__(place, **facts)
        self.hint = hint

    def _what(self) -> str:
        why = f" ({self.hint})" if self.hint else ""
        return f"was lost with the agent of host {self.place.host or '?'}{why}"


class MeshFailure(msgspec.Struct, frozen=True, weakref=True):
    """The failures of a mesh at about one time: passed to ``__supervise__`` of the actor that made the mesh.

    Attributes:
        mesh_id, mesh_name: The mesh.
        errors: One for each failure, in the order of the ranks: `ProcessDied` or `HostLost` for a rank that is gone,
            `ActorError` for an exception that no caller waits for. The first notes who has not handled it.
    """

    mesh_id: str
    mesh_name: str
    errors: tuple[MeshError, ...]

    @property
    def error(self) -> MeshError:
        """The first of the errors."""
        return self.errors[0]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Base ranks, ascending, each once."""
        return tuple(dict.fromkeys(error.place.rank for error in self.errors if isinstance(error, _OfRank)))

    def report(self) -> str:
        """Return what failed, in a few lines."""
        lines = [*map(_first, self.errors), *getattr(self.error, "__notes__", ())]
        return "\n  ".join([f"{self.mesh_name} has failed:", *lines])

    def __str__(self) -> str:
        more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
        return f"MeshFailure of {self.mesh_name}: {_first(self.error)}{more}"


def _first(error: MeshError) -> str:
    return str(error).partition("\n")[0]


class LinkLost(SupervisionError):
    """The connection to a rank broke, and its process is not known to have ended.

    Attributes:
        hint: Why it could not be made; "" if it was made, and broke.
    """

    def __init__(self, place: RankPlace, *, hint: str = "", **facts: Unpack[_Facts]) -> None:
        super().__init__(place, **facts)
        self.hint = hint

    def _what(self) -> str:
        if self.hint:
            return self.hint
        return "closed its connection, but its process has not ended as far as known (did user code close the socket?)"


class MeshStopped(SupervisionError):
    """The mesh or the actor was stopped. ``reason``: what an actor that has stopped itself has given; or ""."""

    reason = ""

    def _what(self) -> str:
        return f"has stopped itself: {self.reason}" if self.reason else "was stopped"


class ActorAborted(SupervisionError):
    """The actor has ended, by ``abort(reason)`` or a `BaseException`; the process stays. ``failure``: its number."""

    reason = failure = ""

    def _what(self) -> str:
        return f"has aborted: {self.reason}" if self.reason else "has aborted"


class Disconnected(MeshError):
    """The connection to another program has ended (`meshrt.connect`): the program ended, or the connection was closed.

    Attributes:
        why: Which program it is, and what has happened.
        call: What was called: ``"trainer.step()"``.
        may_have_run: Whether the call may have reached the ranks.
    """

    def __init__(self, why: str, call: str, *, may_have_run: bool = False) -> None:
        super().__init__(why, call)
        self.why = why
        self.call = call
        self.may_have_run = may_have_run

    def __str__(self) -> str:
        return f"{self.call} failed: {self.why}" + (" (the call may have run)" if self.may_have_run else "")


class MeshBusy(_AtRank, MeshError):
    """A call was sent to no rank of its mesh: one rank's queue is full, and the caller may not wait.

    A caller may not wait on an event loop, or in a done-callback that runs on a thread of meshrt.

    Attributes:
        place: The rank that does not read its messages; the one with the longest queue.
        endpoint: What was called.
        queued: Bytes of memory that its queue takes in this process.
        limit: Bytes from which on a call is refused.
        others: The further ranks whose queues are full.
        wait: What to await before each call, in words; "": ``wait_ready()`` of the endpoint.
    """

    def __init__(
        self, place: RankPlace, endpoint: str, queued: int, limit: int, others: Sequence[RankPlace] = (), wait: str = ""
    ) -> None:
        super().__init__(str(place), endpoint)
        self.place = place
        self.endpoint = endpoint
        self.queued = queued
        self.limit = limit
        self.others: tuple[RankPlace, ...] = tuple(others)
        self.wait: str = wait

    def __str__(self) -> str:
        call = f"{self.place.actor}.{self.endpoint}"
        also = f" (also {'rank' if len(self.others) == 1 else 'ranks'} {_ranks_of(self.others)})" if self.others else ""
        return (
            f"{call}() was not sent: {self.place.where} is not reading its messages{also}: "
            f"{_amount(self.queued)} are queued; the limit for a caller that may not wait is {_amount(self.limit)}; "
            f"limit the number of unanswered calls, or write `await "
            f"{self.wait or f'{call}.wait_ready()'}` before each call; `meshrt ps` shows what the rank does"
        )


class LimitReached(MeshError):
    """A call on an event loop was not sent: as many calls as its endpoint allows (`Endpoint.options`) are unanswered.

    Attributes:
        endpoint: What was called.
        limit: How many calls may be unanswered.
    """

    def __init__(self, endpoint: str, limit: int) -> None:
        super().__init__(endpoint, limit)
        self.endpoint = endpoint
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"{self.endpoint}() was not sent: limit={self.limit}, the number of unanswered calls, is reached; keep the "
            "object that options() has returned, and await its wait_ready() before each call"
        )


class PortClosed(MeshError):
    """A message was sent to a port whose receiver is closed, or `recv` was called on a closed receiver."""


class SpawnError(MeshError, RuntimeError):
    """The processes of a mesh could not be started; those that had started were stopped."""


class StoreFull(MeshError):
    """Shared memory for an object was refused; nothing was stored.

    Attributes:
        size: Bytes of the object.
        limit: Bytes that ``what`` allows.
        used: Bytes that the store of this host has already.
        what: What refuses it.
    """

    def __init__(self, size: int, limit: int, used: int, what: str) -> None:
        super().__init__(size, limit, used, what)
        self.size = size
        self.limit = limit
        self.used = used
        self.what = what

    def __str__(self) -> str:
        asked, limit, used = map(_amount, (self.size, self.limit, self.used))
        # What is larger than all that is allowed does not fit whatever is dropped.
        drop = "drop references (`meshrt memory --refs` shows who holds what), " if self.size <= self.limit else ""
        return (
            f"{asked} do not fit in the store: the store uses {used}, and {self.what} is {limit}; "
            f"{drop}raise the limit, or let the store spill to files (MESHRT_STORE_SPILL=1, put(spill=True))"
        )


def _amount(count: int) -> str:
    return f"{count / (1 << 20):.2f} MiB" if count >= 1 << 20 else f"{count / (1 << 10):.1f} KiB" if count else "0 B"


class StoreTimeout(MeshError, TimeoutError):
    """The agent of a host does not answer requests about shared memory. The request may be repeated.

    Attributes:
        host: Its host; "" where this process does not know it.
        pid: Of the agent.
        seconds: How long it has sent nothing.
        since: When that began, ns since the epoch.
        stopped: Whether a signal, or a debugger, had stopped it.
    """

    def __init__(self, host: str, pid: int, seconds: float, *, since: int, stopped: bool) -> None:
        super().__init__(pid)  # one: of two a TimeoutError takes the first for the number of an error
        self.host = host
        self.pid = pid
        self.seconds = seconds
        self.since = since
        self.stopped = stopped

    def __str__(self) -> str:
        who = f"the agent of host {self.host} (pid {self.pid})" if self.host else f"a host agent (pid {self.pid})"
        begun = _time.strftime("%H:%M:%S", _time.localtime(self.since / 1e9))
        why = (
            f"its process was stopped by a signal or a debugger: `kill -CONT {self.pid}` resumes it"
            if self.stopped
            else "its process is not stopped: check the load of its machine, and try again"
        )
        silent = f"has not answered requests about shared memory since {begun}, for {round(self.seconds, 1):g} s"
        return f"{who} {silent}; {why}"


class ReferenceLost(MeshError):
    """The object of a reference is gone: the host agent that kept it has ended."""


class CallCancelled(MeshError):
    """The caller has cancelled its call (`Future.cancel`).

    Attributes:
        what: The call.
        missing: The places that had not answered.
        total: How many were asked.
    """

    def __init__(self, what: str, missing: Sequence[RankPlace], total: int) -> None:
        super().__init__(what, missing, total)
        self.what = what
        self.missing: tuple[RankPlace, ...] = tuple(missing)
        self.total = total

    def __str__(self) -> str:
        return f"{self.what} was cancelled by its caller; {_unanswered(self.missing, self.total)} had not answered"


def _unanswered(missing: Sequence[RankPlace], total: int) -> str:
    who = missing[0].where if len(missing) == 1 else f"ranks {_ranks_of(missing)}"
    return f"{len(missing)} of {total} ({who})"


class CallTimeout(MeshError, TimeoutError):
    """``get(timeout=...)`` expired. Nothing was cancelled: a later ``get`` may still succeed.

    Where the time is an option of the call itself (`Endpoint.options`), the call was cancelled.

    Attributes:
        missing: The places that have not answered.
        total: How many were asked.
        seconds: The time-out that ran out.
        over: Whether the script has ended with this error: a longer wait is not possible then.
        cancelled: Whether the call was cancelled by it.
        known: What is known of what was waited for, where no places are asked: a message to a port.
    """

    def __init__(self, what: str, seconds: float, missing: Sequence[RankPlace], total: int) -> None:
        super().__init__(what)  # one: of two a TimeoutError takes the first for the number of an error
        self.what = what
        self.seconds = seconds
        self.missing: tuple[RankPlace, ...] = tuple(missing)
        self.total = total
        self.over = self.cancelled = False
        self.known = ""

    def __str__(self) -> str:
        if not self.missing:
            goes_on = "" if self.over else "; you can wait again"
            known = f"; {self.known}" if self.known else ""
            return f"{self.what}: not done within {self.seconds:g} s{known}{goes_on}"
        goes_on = "" if self.over else "; the call is still running; you can wait again"
        goes_on = "; the call was cancelled" if self.cancelled else goes_on
        who = _unanswered(self.missing, self.total)
        return f"{self.what}: no answer within {self.seconds:g} s from {who}{goes_on}"


class ProtocolError(MeshError):
    """A peer sent what the protocol does not allow; its link is closed."""


class DebugAdapterError(MeshError):
    """The engine that an IDE has in a rank refuses a request."""


class AuthenticationError(ProtocolError):
    """The peer could not prove that it holds the secret, or speaks another protocol."""


class ShutdownError(MeshError, RuntimeError):
    """The interpreter or the runtime is closing; no new work is accepted."""
