"""Stopping an actor where it runs or waits, on a user's request.

::

    asked --on the thread, in user code--> stopped --the user resumes--> (nothing)
      |-- the thread stops for another reason, such as a breakpoint, or it is withdrawn --> (nothing)
      '-- the endpoint, or the thread, ends first --> missed: the root is told

How the actor's thread is reached:

* **main thread**: a signal. Its handler interrupts a blocked system call, opens the prompt there, and the call goes on
  afterwards. If the runtime itself is at work, the thread stops where the user's code goes on; in a ``get()`` that
  waits, at once, through the driver.
* **a further actor's thread, or a thread of the user's**: ``sys.monitoring``; a call that blocks has to return first.
  From Python 3.12.
* **an event loop that waits**: a callback on it, which shows where the endpoint's coroutine is suspended.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import TYPE_CHECKING

from meshrt.actor.headroom import SHORTAGES, say_unavailable
from meshrt.debug.advice import FIRST_ONLY, how_to_stop
from meshrt.debug.rank.monitoring import Monitor
from meshrt.debug.rank.session import RankSession
from meshrt.debug.rank.sessions import RankSessions, ident_of
from meshrt.debug.rank.suspended import await_chain, may_break
from meshrt.debug.rank.tracing import Tracer
from meshrt.debug.rank.users_trace import UsersTrace, above
from meshrt.debug.rank_operations import Interrupted, InterruptRank, Missed, WithdrawInterrupt
from meshrt.debug.stepping import user_frame
from meshrt.errors import MeshError
from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.hooks.services import RankServices

if TYPE_CHECKING:
    import asyncio

__all__ = ["Interrupts"]

#: Pause before the next signal, after one that came while the runtime was at work: the first and the longest, seconds.
_RETRY_SECONDS = 0.02
_RETRY_MAX_SECONDS = 0.5
#: How often a signal without effect is sent again: each may cut short a C library's own wait.
_SENT_AGAIN = 3


class _Ask:
    """One request that has not been carried out yet."""

    def __init__(self, actor: ActorState, thread: str = "") -> None:
        self.actor = actor.name
        #: A thread of the user's own; "": the thread of the actor.
        self.thread = thread
        self.call = None if thread else actor.serves
        #: The call that the session belongs to.
        self.owner = self.call
        #: The actor has an event loop: if that is idle, `Interrupts._on_loop` carries out the request.
        self.on_loop = actor.loop is not None and not thread
        #: The thread is stopping for it now.
        self.taken = False
        #: The signal handler has run; how often the signal was sent again because it had not.
        self.seen = False
        self.again = 0
        #: The user's trace of the thread, if the thread is traced for this request instead.
        self.users_trace = UsersTrace()
        #: The signal came while the runtime was at work.
        self.missed = False
        #: Nobody wants it any more.
        self.withdrawn = False


class Interrupts:
    """The requests of this rank.

    Args:
        monitor: Reaches the threads of further actors; None before Python 3.12.
    """

    def __init__(self, services: RankServices, sessions: RankSessions, tracer: Tracer, monitor: Monitor | None) -> None:
        self._services = services
        self._sessions = sessions
        self._tracer = tracer
        self._monitor = monitor
        self._asked: dict[int, _Ask] = {}
        #: The line that is to be interrupted on the main thread; 0: none.
        self._line = 0
        #: Endpoints that the user aborted while they were suspended, by thread.
        self._cancelled: dict[int, tuple[EndpointCall, asyncio.Task[object]]] = {}

    @property
    def pending(self) -> bool:
        """Whether the end of an endpoint concerns a request. Any thread."""
        return bool(self._asked or self._cancelled)

    # -- on the control thread

    def ask(self, asked: InterruptRank) -> Interrupted:
        """Request that an actor stops. Returns at once; the stop itself is announced like every stop.

        If the actor cannot be stopped, a report says so as well: the answer may come too late to be read.

        Raises:
            MeshError: No such actor, or its thread cannot be reached.
        """
        try:
            answer = self._ask(asked.actor, asked.thread)
        except MeshError as error:
            self._missed(asked.actor, asked.thread, str(error))
            raise
        if answer.state == "idle":
            self._missed(asked.actor, asked.thread, "")
        return answer

    def _ask(self, name: str, thread: str) -> Interrupted:
        actor = self._actor(name)
        ident = ident_of(thread) if thread else actor.thread
        session = self._sessions.of_thread(ident) if ident is not None else None
        if session is not None and session.stopped:
            if self.cancel_line(session, session.running):
                return Interrupted("asked", f"running a line, {session.place()}")
            return Interrupted("stopped", str(session.place()))
        frame, _ = user_frame(sys._current_frames().get(ident)) if ident is not None else (None, True)
        waits = actor.loop is not None and actor.serves is not None and not thread
        # A call may be about to enter the user's code: so is the script of a process that joins.
        begins = actor.call is not None and not thread
        if ident is None or (frame is None and not waits and not begins):
            if thread:
                raise MeshError(f"thread {thread!r} is not running Python code of the user")
            return Interrupted("idle", "the actor waits for messages")
        where = "in an await" if waits else "not in the user's code yet"
        if frame is not None:
            where = f"at {frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
        pending = self._asked.get(ident)
        if pending is None or pending.withdrawn or not (thread or actor.runs(pending.call)):
            ask = _Ask(actor, thread)
            if pending is not None and pending.withdrawn:
                ask.users_trace = pending.users_trace
            if thread:
                ask.owner = actor.serves or EndpointCall(
                    self._services.mesh_id, actor.name, self._services.rank, "", []
                )
            self._reach(ask, ident, actor.loop)
        return Interrupted("asked", where)

    def cancel_line(self, session: RankSession, line: int) -> bool:
        """Raise KeyboardInterrupt in the line that has answered prompt ``line``. Returns False if it does not run."""
        if not line or session.running != line:
            return False
        if session.ident == threading.main_thread().ident:
            self._line = line
        self._break_line(session, session.ident, line, _RETRY_SECONDS)
        return True

    def withdraw(self, withdrawn: WithdrawInterrupt) -> None:
        """Drop the request for the thread of an actor, unless it is being carried out."""
        actor = self._state(withdrawn.actor)
        ask = self._asked.get(actor.thread) if actor is not None and actor.thread is not None else None
        if ask is not None:
            ask.withdrawn = True  # its thread drops it: what was set up for it there is that thread's

    def _actor(self, name: str) -> ActorState:
        actor = self._state(name)
        if actor is not None:
            return actor
        there = ", ".join(actor.name for actor in self._services.actors()) or "none"
        raise MeshError(f"there is no actor {name!r} on this rank; it has {there}")

    def _reach(self, ask: _Ask, ident: int, loop: asyncio.AbstractEventLoop | None) -> None:
        on_main = ident == threading.main_thread().ident
        if not on_main and self._monitor is None and not ask.on_loop:
            how = how_to_stop(ask.actor, "", first=False, thread=bool(ask.thread))
            raise MeshError(f"{FIRST_ONLY}; to stop it: {how}")
        self._asked[ident] = ask
        try:
            if on_main:
                self._services.signal_main()
                self._services.call_later(_RETRY_SECONDS, lambda: self._retry(ident, ask, _RETRY_SECONDS))
            elif self._monitor is not None:
                self._monitor.stop_thread(ident)
            if ask.on_loop and loop is not None:
                loop.call_soon_threadsafe(self._on_loop, ask)
            if ask.thread:
                self._services.call_later(_RETRY_MAX_SECONDS, lambda: self._mind_thread(ident, ask))
        except BaseException:
            self._asked.pop(ident, None)
            raise

    def _break_line(self, session: RankSession, ident: int, line: int, pause: float) -> None:
        """Interrupt a line that is running, repeatedly, until it is broken or has ended. On the control thread."""
        if ident == threading.main_thread().ident:
            if self._line != line:
                return  # it was broken, or another one is to be interrupted
            if session.running != line:
                self._line = 0
                return
            self._services.signal_main()
            self._services.interject(lambda _waited: self._break_here(None))
        elif session.running != line or session.break_line(ident):
            return
        again = min(2 * pause, _RETRY_MAX_SECONDS)
        self._services.call_later(pause, lambda: self._break_line(session, ident, line, again))

    def _retry(self, ident: int, ask: _Ask, pause: float) -> None:
        """Signal again if the runtime was at work: the user's code may enter a call that blocks next."""
        if self._asked.get(ident) is not ask or ask.withdrawn:
            return
        # A signal that comes just before a call blocks does not wake the call; then no handler has run.
        lost = not ask.seen and ask.again < _SENT_AGAIN
        if ask.missed or lost:
            ask.missed = False
            ask.again += lost
            try:
                self._services.signal_main()
            except MeshError:
                return  # user code has taken over the signal; its next line stops it
        pause = min(2 * pause, _RETRY_MAX_SECONDS)
        self._services.call_later(pause, lambda: self._retry(ident, ask, pause))

    def _mind_thread(self, ident: int, ask: _Ask) -> None:
        """Drop a request for a thread that has ended: no other event reports this."""
        if self._asked.get(ident) is not ask:
            return
        if ident in sys._current_frames():
            self._services.call_later(_RETRY_MAX_SECONDS, lambda: self._mind_thread(ident, ask))
        else:
            self._miss(ident, ask)

    # -- on the actor's thread

    def on_signal(self, frame: FrameType | None) -> None:
        """Carry out a request for the main thread, in the signal handler that interrupted ``frame``."""
        if self._line:
            self._break_here(frame)
        asked = self._asked.get(get_ident())
        if asked is not None:
            asked.seen = True
        ask = self._current(get_ident())
        if ask is None:
            return
        where, safe = user_frame(frame)
        session = self._sessions.of_thread(get_ident())
        if where is None:
            if ask.call is None:
                self._asked.pop(get_ident(), None)
            elif not ask.on_loop:
                ask.missed = True  # its first line is to come, or the last one was
        elif safe:
            self._stop(ask, where)
        else:
            ask.missed = True
            if session is not None and session.traces:
                ident = get_ident()
                session.when_stopped = lambda: self._carried_out(ident, ask)
                session.steps.stop_soon(where)
            else:
                ask.users_trace.put_aside(above(where))
                self._tracer.arm(where)
            self._services.interject(lambda _waited: self.on_line(sys._getframe(1)))

    def _break_here(self, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt if the line that runs is to be interrupted. On the main thread.

        Args:
            frame: Where the thread is; None: it waits in a ``get()``.
        """
        line = self._line
        session = self._sessions.of_thread(get_ident())
        if line and session is not None and session.running == line and (frame is None or may_break(frame)):
            self._line = 0
            raise KeyboardInterrupt

    def on_line(self, frame: FrameType) -> None:
        """Stop for a request: its thread goes on in ``frame``, or waits in a ``get()`` there."""
        self._tracer.disarm(get_ident())
        ask = self._current(get_ident())
        where, _ = user_frame(frame)
        if ask is not None and where is not None:
            self._stop(ask, where)
        elif ask is None and self._monitor is not None:
            self._monitor.spare_thread(get_ident())

    def stopped(self) -> None:
        """Drop the request for the calling thread, which is at a prompt: one stop is enough, whatever its reason."""
        ident = get_ident()
        ask = self._asked.get(ident)
        if ask is None or ask.taken:
            return
        if ask.users_trace:
            self._sessions.adopt(ask.users_trace)
            ask.users_trace = UsersTrace()
        self._forget(ident)

    def ended(self, ident: int, call: EndpointCall) -> None:
        """Drop the request of an endpoint of the calling thread that has ended, or move it to another call."""
        ask = self._asked.get(ident)
        if ask is not None and not ask.taken and (ask.call is None or ask.call is call):
            self._miss_call(ident, ask, call)
        cancelled = self._cancelled.get(ident)
        if cancelled is not None and cancelled[0] is call:
            del self._cancelled[ident]
            cancelled[1].uncancel()

    def _on_loop(self, ask: _Ask) -> None:
        """Stop where the endpoint is suspended: the event loop is idle, so what the endpoint awaits is not done."""
        ident = get_ident()
        call = ask.call
        if self._current(ident) is not ask or call is None:
            return
        state = self._state(ask.actor)
        task: asyncio.Task[object] | None = state.task_of(call) if state is not None else None
        stack = await_chain(task) if task is not None else []
        if task is None or not stack:
            self._forget(ident)
            return

        def abort(reason: str) -> None:
            self._cancelled[ident] = call, task
            task.cancel(reason)

        self._take(ask, lambda session: session.steps.stop_suspended(stack, abort))

    def _stop(self, ask: _Ask, frame: FrameType) -> None:
        self._take(ask, lambda session: session.steps.stop_at(frame, "interrupt"))

    def _take(self, ask: _Ask, stop: Callable[[RankSession], None]) -> None:
        ident = get_ident()
        ask.taken = True
        self._tracer.disarm(ident)
        if self._monitor is not None:
            self._monitor.spare_thread(ident)
        try:
            session = self._sessions.open(ask.owner)
            if ask.users_trace:
                self._sessions.adopt(ask.users_trace)
        except SHORTAGES as error:
            self._carried_out(ident, ask)
            ask.users_trace.put_back()
            say_unavailable(error)
            return
        # Until the prompt is open, the same request again is this one; from then on the thread is known to be stopped.
        session.when_stopped = lambda: self._carried_out(ident, ask)
        try:
            stop(session)
        except SHORTAGES as error:
            say_unavailable(error)
        finally:
            session.when_stopped = None
            self._carried_out(ident, ask)

    def _carried_out(self, ident: int, ask: _Ask) -> None:
        if self._asked.get(ident) is ask:
            del self._asked[ident]

    def _current(self, ident: int) -> _Ask | None:
        """Return the request for a thread, unless it is being carried out or has come too late."""
        ask = self._asked.get(ident)
        if ask is None or ask.taken:
            return None
        session = self._sessions.of_thread(ident)
        state = self._state(ask.actor)
        runs = state is not None and (ask.thread or state.runs(ask.call))
        if runs and not ask.withdrawn and (session is None or not session.stopped):
            return ask
        self._forget(ident)
        return None

    def _state(self, name: str) -> ActorState | None:
        return next((actor for actor in self._services.actors() if actor.name == name), None)

    def _miss_call(self, ident: int, ask: _Ask, ended: EndpointCall) -> None:
        """Move a request whose call has ended to another call of the actor; drop it if there is none."""
        state = self._state(ask.actor)
        others = (state.call, *state.concurrent.values()) if state is not None else ()
        other = next((call for call in others if call is not None and call is not ended), None)
        if state is None or other is None:
            self._miss(ident, ask)
            return
        ask.call = ask.owner = other
        if ask.on_loop and state.loop is not None:
            state.loop.call_soon_threadsafe(self._on_loop, ask)

    def _miss(self, ident: int, ask: _Ask) -> None:
        self._forget(ident)
        if not ask.withdrawn:
            self._missed(ask.actor, ask.thread, "")

    def _missed(self, actor: str, thread: str, why: str) -> None:
        self._services.report(Missed(actor, thread, why))

    def _forget(self, ident: int) -> None:
        ask = self._asked.pop(ident, None)
        if ask is not None and ident == get_ident():
            ask.users_trace.put_back()
        self._tracer.disarm(ident)
        if self._monitor is not None:
            self._monitor.spare_thread(ident)

    def close(self) -> None:
        """Forget everything: this process is a forked child."""
        self._asked.clear()
        self._line = 0
