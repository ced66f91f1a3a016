"""The sessions of one rank. Each belongs to an endpoint call on its actor's thread, or to a thread of the user's own.

On the thread of an actor with concurrent endpoints, several calls take turns. Only one of them is at a prompt at a
time, because a stop stops the thread. The user names them all by the actor.

The memory view lists the local variables of the frames that are stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import get_ident
from types import FrameType

from meshrt.debug.rank.pdb_adapter import PdbAdapter
from meshrt.debug.rank.session import RankSession
from meshrt.debug.rank.users_trace import UsersTrace
from meshrt.debug.rank.variables import left_alone
from meshrt.errors import MeshError
from meshrt.hooks.facts import EndpointCall, Variable
from meshrt.hooks.services import RankServices
from meshrt.inspect.records import names_thread, typed_name
from meshrt.inspect.variables import local_variables

__all__ = ["RankSessions", "ident_of", "variables_of"]


class RankSessions:
    """Any thread may look up a session; a thread opens and ends only its own sessions.

    Args:
        make: ``make(call, name of the thread)`` returns a new session; the name is "": the thread of the call's actor.
        opened: Called with a new session once it can be looked up; on its thread.
    """

    def __init__(
        self,
        services: RankServices,
        make: Callable[[EndpointCall, str], RankSession],
        opened: Callable[[RankSession], None],
    ) -> None:
        self._services = services
        self._make = make
        self._opened = opened
        self._last_call: EndpointCall | None = None
        #: By thread, and the call's identity (equal calls are not the same call); 0: no call.
        self._table: dict[tuple[int, int], RankSession] = {}
        #: By thread: its sessions come and go, and the user's trace function belongs to the thread.
        self._users_traces: dict[int, UsersTrace] = {}
        #: Called when a session comes to a prompt; on its thread.
        self.came: Callable[[], None] = lambda: None
        #: Called when a session ends or leaves its prompt; on its thread.
        self.left: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[RankSession]:
        return iter(list(self._table.values()))

    def __len__(self) -> int:
        return len(self._table)

    # -- on the thread that runs user code

    def open(self, call: EndpointCall | None = None) -> RankSession:
        """Return the session of what the calling thread runs; make one if it has none.

        Args:
            call: What it runs, if the thread itself does not know.
        """
        ident = get_ident()
        for session in self:
            ended = session.ident == ident and not session.thread and not self._runs(session.call)
            if ended and not session.wants_trace:
                session.end()  # what it belonged to has ended and was no endpoint: the loading of a class
        current = self._services.current_call()
        if current is not None and (call is None or self._runs(current)):
            call = current
        key = self._key(ident, call)
        known = self._table.get(key)
        if known is not None:
            return known
        thread = "" if key[1] else self._thread_name()
        self._last_call = call = call or self.call_of_thread()
        session = self._table[key] = self._make(call, thread)
        self._opened(session)
        return session

    def exactly(self, call: EndpointCall | None) -> RankSession | None:
        """Return the session of a call on the calling thread; None: of the thread itself."""
        return self._table.get(self._key(get_ident(), call))

    def users_trace(self, ident: int) -> UsersTrace:
        """Return the user's own trace of a thread, as it was put aside."""
        return self._users_traces.setdefault(ident, UsersTrace())

    def adopt(self, users_trace: UsersTrace) -> None:
        """Take over the user's trace of the calling thread, which was put aside elsewhere."""
        self._users_traces[get_ident()] = users_trace

    def current(self) -> RankSession | None:
        """Return the session of what the calling thread runs, if it has one."""
        ident = get_ident()
        return self.exactly(self._services.current_call()) or self.of_thread(ident)

    def end(self, call: EndpointCall) -> None:
        """End the session of a call that has ended on the calling thread, if it had one."""
        session = self._table.pop((get_ident(), id(call)), None)
        if session is not None:
            session.end()

    def forget(self, session: RankSession) -> None:
        """Remove a session that has ended."""
        for key, known in list(self._table.items()):
            if known is session:
                del self._table[key]
        if not self._users_traces.get(session.ident) and self.of_thread(session.ident) is None:
            self._users_traces.pop(session.ident, None)
        self.left()

    def turn_of(self, session: RankSession) -> str:
        """Return the name of the session's call if other calls of its thread have sessions too, or ""."""
        if session.thread or all(other is session or other.ident != session.ident for other in self):
            return ""
        for actor in self._services.actors():
            for task, call in actor.concurrent.items():
                if call is session.call:
                    return str(task.get_name())
        return session.call.endpoint

    def tracing(self) -> RankSession | None:
        """Return a session of the calling thread that traces it, because it steps or has breakpoints of its own."""
        ident = get_ident()
        return next((session for session in self if session.ident == ident and session.wants_trace), None)

    def alone(self, call: EndpointCall) -> bool:
        """Whether the calling thread runs no other call beside ``call``."""
        ident = get_ident()
        actor = next((actor for actor in self._services.actors() if actor.thread == ident), None)
        return actor is None or all(other is call for other in actor.concurrent.values())

    def call_of_thread(self) -> EndpointCall:
        """Return the endpoint call that a thread of the user's own belongs to: the one that runs, or the last one."""
        calls = list(self._services.current_calls())
        if calls:
            return calls[-1]
        if self._last_call is not None:
            return self._last_call
        return EndpointCall(self._services.mesh_id, "thread", self._services.rank, "", [])

    def _key(self, ident: int, call: EndpointCall | None) -> tuple[int, int]:
        """Return the key; a call on another thread than its actor's (``asyncio.to_thread``) counts as no call."""
        known = call is not None and any(
            actor.name == call.actor and actor.thread == ident for actor in self._services.actors()
        )
        return ident, id(call) if known else 0

    def _runs(self, call: EndpointCall) -> bool:
        return any(running is call for running in self._services.current_calls())

    def _thread_name(self) -> str:
        """Return a name for a thread of the user's own that can be typed and is unique on this rank."""
        name = typed_name(threading.current_thread().name)
        taken = {session.thread for session in self}
        return f"{name}-{threading.get_native_id()}" if name in taken else name

    # -- any thread

    def of_thread(self, ident: int) -> RankSession | None:
        """Return the session of a thread: the one at a prompt or at work on a line, or else the one that traces it."""
        sessions = [session for session in self if session.ident == ident]
        return min(sessions, key=lambda each: 0 if each.stopped else 1 if each.wants_trace else 2, default=None)

    def busy(self) -> RankSession | None:
        """Return a session that is stopped or steps: its thread is not free. Any thread."""
        return next((session for session in self if session.stopped or session.wants_trace), None)

    def named(self, actor: str, thread: str) -> RankSession | None:
        """Return the session that a user names by an actor, or by a thread beside it."""
        sessions = [session for session in self if session.call.actor == actor and session.thread == thread]
        return next((session for session in sessions if session.stopped), next(iter(sessions), None))

    def clear(self) -> None:
        """Forget everything: this process is a forked child."""
        self._table.clear()
        self._users_traces.clear()


def ident_of(name: str) -> int:
    """Return the ident of a thread of the user's own, by the name that a user types."""
    # Not `threading.enumerate`: a thread that is stopped at a breakpoint may hold its lock.
    known = dict(getattr(threading, "_active", {}))
    found = [ident for ident, thread in known.items() if names_thread(name, thread.name)]
    if len(found) == 1:
        return int(found[0])
    if found:
        raise MeshError(f"{len(found)} threads of this rank are called {name!r}")
    there = ", ".join(sorted({typed_name(thread.name) for thread in known.values()}))
    raise MeshError(f"there is no thread {name!r} on this rank; it has {there}")


def variables_of(sessions: Iterable[RankSession]) -> Iterator[Variable]:
    """Iterate over the variables of the frames of every session at a prompt, those of the innermost frame first.

    Any thread. The frame of a module is left out: its variables are globals, which are listed elsewhere.
    """
    for session in sessions:
        pdb = session.prompt.pdb
        if session.stopped:
            for frame, line in reversed(list(pdb.frames)):
                yield from local_variables(session.call.actor, frame, line, _names(pdb, frame))


def _names(pdb: PdbAdapter, frame: FrameType) -> Mapping[str, object]:
    if frame is pdb.frame:
        return pdb.names  # as the user sees them; an assignment to the frame's own may be pending
    names = frame.f_locals
    if names is frame.f_globals:
        return {}
    if frame is pdb.frames[-1][0]:
        names = dict(names)
        left_alone(frame)  # its trace function has yet to return, and would write back what was read here
    return names
