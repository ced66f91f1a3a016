"""The debugger in a rank: what stops there, and the operations that it serves.

Loaded by the first ``breakpoint()`` of the process, or by the first operation of its name.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
from collections.abc import Collection
from threading import get_ident
from types import FrameType

from meshrt.actor.headroom import SHORTAGES, headroom, say_unavailable
from meshrt.debug.operations import Completions
from meshrt.debug.rank.breakpoints import BreakTable, Hit
from meshrt.debug.rank.completion import complete
from meshrt.debug.rank.evaluate import Evaluator, namespace_of
from meshrt.debug.rank.handover import Handover
from meshrt.debug.rank.interrupts import Interrupts
from meshrt.debug.rank.monitoring import Monitor
from meshrt.debug.rank.postmortem import PostMortem
from meshrt.debug.rank.session import RankSession
from meshrt.debug.rank.sessions import RankSessions, variables_of
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.rank.tracing import Tracer
from meshrt.debug.rank.users_trace import TraceFunction, above
from meshrt.debug.rank_operations import (
    Accepted,
    BreakHits,
    BreakStates,
    CancelExpression,
    CancelLine,
    CompleteAtRank,
    Evaluate,
    Input,
    Interrupted,
    InterruptRank,
    OwnMode,
    ReadHits,
    SetBreaks,
    SetModes,
    StopOthers,
    WithdrawInterrupt,
)
from meshrt.debug.stepping import caller_frame
from meshrt.debug.switch import switched_off
from meshrt.errors import MeshError
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.operations import Grouped, Nothing
from meshrt.hooks.services import RankServices
from meshrt.hooks.table import hooks

__all__ = ["RankDebugger", "debugger_of", "load"]

_PRICE = (
    "Python 3.11 traces every call while breakpoints are set: calls take 5 to 10 times as long, loops twice as long; "
    "code that already runs in threads other than the main thread does not stop"
)


class RankDebugger:
    """All sessions of this process, and everything that may begin one. It is the `MeshBreaks` of sessions."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._sessions = RankSessions(services, self._new_session, self._opened)
        #: Numbers of prompts: a line for one prompt is not taken by another.
        self._numbers = itertools.count(1)
        self._sources = SourceFetcher(services)
        self._exit_lock = threading.Lock()
        self._closing = False
        #: The program is gone, and the process goes on.
        self._lost = False
        #: Threads in which breakpoints are ignored.
        self._quiet: set[int] = set()
        self._table = BreakTable()
        by_monitoring = sys.version_info >= (3, 12)
        self._tracer = Tracer(self._table, self._reached, self._interrupted, breaks=not by_monitoring)
        self._monitor = Monitor(self._table, self._reached, self._interrupted) if by_monitoring else None
        self._interrupts = Interrupts(services, self._sessions, self._tracer, self._monitor)
        self._sessions.came = self._interrupts.stopped
        self._post_mortem = PostMortem(services, self._sources)
        self._evaluator = Evaluator(services, self._sources, self._quiet)
        #: Knows what controls the threads of this rank.
        self.handover = Handover(self._sessions, self._rest)

    # -- on the thread that runs user code -----------------------------------------------------------------------------

    def breakpointhook(self, *args: object, **kwargs: object) -> None:
        """Stop the calling thread.

        Arguments that are used: ``header``, a line to show first; ``all``: the other ranks of the actor stop, too.
        """
        frame = caller_frame(sys._getframe(1))
        if frame is None or os.environ.get("PYTHONBREAKPOINT") == "0" or switched_off() or get_ident() in self._quiet:
            return
        with headroom, self.handover.entering():
            try:
                if self.handover.breakpoint(frame):
                    return
                session = self._sessions.open()
                if kwargs.get("header"):
                    session.console.write(f"{kwargs['header']}\n")
                if kwargs.get("all") and not session.prompt.is_open and not self._closing:
                    self._services.report(StopOthers(session.call.actor, session.thread))
                session.breakpoint(frame)
            except SHORTAGES as error:
                say_unavailable(error)

    def endpoint_enter(self, call: EndpointCall) -> None:
        """Look for breakpoints in the endpoint that begins, and on it. Called while any are set."""
        if self._table.bind_methods(self._services.actors()):
            if not self._table.active:
                self._services.call_later(0, self._watch_no_more)
            elif self._monitor is not None:
                self._monitor.refresh()
        self._tracer.follow(None)

    def endpoint_exit(self, call: EndpointCall) -> None:
        """End the session of the endpoint that ended."""
        self._interrupts.ended(get_ident(), call)
        self._sessions.end(call)
        if self._sessions.alone(call):
            self._tracer.leave()
        self._mind_exits()

    def _mind_exits(self, *, coming: bool = False) -> None:
        """Listen for the ends of endpoints only while they matter: each call would cost time otherwise. Any thread.

        Args:
            coming: A request or a session is about to begin.
        """
        exits = hooks.endpoint_exit
        with self._exit_lock:
            wanted = coming or len(self._sessions) > 0 or self._interrupts.pending
            if wanted and self.endpoint_exit not in exits:
                exits.append(self.endpoint_exit)
            elif not wanted and self.endpoint_exit in exits:
                exits.remove(self.endpoint_exit)

    def endpoint_error(self, call: EndpointCall, exception: BaseException) -> None:
        """Stop where an endpoint failed, or write a file about it, before the caller gets the exception."""
        if self._closing or self.handover.holder:
            return
        if self._post_mortem.stops(call, exception, self._sessions.exactly(call)):
            self._sessions.open(call).failed(exception)

    def signalled(self, frame: FrameType | None) -> None:
        """Handle the rank's signal. On the main thread, in the signal handler."""
        self._interrupts.on_signal(frame)
        # Also where an event loop waits, outside the context of any call: the calls that it goes on with are followed.
        self._tracer.follow(frame)

    def _opened(self, session: RankSession) -> None:
        self._mind_exits()
        if self._lost:
            session.resume()
        elif self._closing:
            session.close()

    def _new_session(self, call: EndpointCall, thread: str) -> RankSession:
        self._sources.new_session()
        return RankSession(self._services, call, thread, self._sources, self, self._sessions, self._numbers)

    # -- breakpoints of running ranks, on the threads that reach them --------------------------------------------------

    def watched(self, frame: FrameType) -> bool:
        """See `MeshBreaks`."""
        return self._tracer.wanted and bool(self._table.lines_in(frame.f_code))

    def traced(self, frame: FrameType) -> bool:
        """See `MeshBreaks`."""
        hit = self._hit(frame) if self._tracer.wanted else None
        if hit is not None:
            self._sessions.open().hit(hit)
        return hit is not None

    def marks(self, frame: FrameType) -> bool:
        """See `MeshBreaks`."""
        return self._monitor is not None and frame.f_lineno in self._table.lines_in(frame.f_code)

    def follow(self, frame: FrameType | None) -> TraceFunction | None:
        """See `MeshBreaks`."""
        stepping = self._sessions.tracing()
        if stepping is not None:
            sys.settrace(stepping.trace_function)  # of a concurrent call, whose turn comes
            return None
        if self._sessions.users_trace(get_ident()).put_back():
            return None
        return self._tracer.follow(frame)

    def local(self, frame: FrameType) -> TraceFunction | None:
        """See `MeshBreaks`."""
        return self._tracer.local(frame)

    def _reached(self, frame: FrameType) -> None:
        """Stop at a line with a breakpoint that is about to run."""
        session = self._sessions.of_thread(get_ident())
        if session is not None and session.stopped:
            return  # a command that is running leads here
        session = self._sessions.current()
        just_stopped = session is not None and session.steps.take_mark(frame)
        hit = self._hit(frame)
        if hit is None or just_stopped:
            return
        with headroom:
            try:
                session = self._sessions.open()
                session.hit(hit)
                session.steps.stop_at(frame, "breakpoint", traced=True)
            except SHORTAGES as error:
                say_unavailable(error)

    def _hit(self, frame: FrameType) -> Hit | None:
        if self._closing or get_ident() in self._quiet:
            return None
        hit = self._table.reached(
            frame, lambda: (self._services.current_call() or self._sessions.call_of_thread()).actor
        )
        if hit is not None and not self._table.active:
            self._services.call_later(0, self._watch_no_more)
        return hit

    def _interrupted(self, frame: FrameType) -> None:
        self._interrupts.on_line(frame)

    # -- on the control thread -----------------------------------------------------------------------------------------

    def input(self, answer: Input) -> Accepted:
        """Pass the answer to a prompt to the session that it is for."""
        session = self._sessions.named(answer.actor, answer.thread)
        return Accepted(session is not None and session.feed(answer))

    def cancel_line(self, asked: CancelLine) -> Accepted:
        """Raise KeyboardInterrupt in a line that runs."""
        session = self._sessions.named(asked.actor, asked.thread)
        return Accepted(session is not None and self._interrupts.cancel_line(session, asked.seq))

    def interrupt(self, asked: InterruptRank) -> Grouped[Interrupted, None]:
        """Request that an actor stops where it is, and that expressions end for which nobody waits any more."""
        self._evaluator.cancel_late(asked.actor)
        self._mind_exits(coming=True)
        try:
            self.handover.check()
            return Grouped(self._interrupts.ask(asked))
        finally:
            self._mind_exits()

    def withdraw(self, withdrawn: WithdrawInterrupt) -> Grouped[Nothing, None]:
        """Drop a request to stop an actor."""
        self._interrupts.withdraw(withdrawn)
        self._mind_exits()
        return Grouped(Nothing())

    def breaks(self, asked: SetBreaks) -> Grouped[BreakStates, None]:
        """Replace the table of breakpoints."""
        self._table.replace(asked.breaks, self._services.actors())
        price = self._watch()
        return Grouped(BreakStates(self._table.states(), price))

    def _watch(self) -> str:
        """Start or stop looking for the breakpoints of the table. Return a note on the cost, or ""."""
        active = self._table.active
        if active and self.endpoint_enter not in hooks.endpoint_enter:
            hooks.endpoint_enter.append(self.endpoint_enter)
        elif not active and self.endpoint_enter in hooks.endpoint_enter:
            hooks.endpoint_enter.remove(self.endpoint_enter)
        self._mind_exits()
        if self._monitor is not None:
            self._monitor.refresh()
            return self.handover.resting()
        self._tracer.follow_new_threads()
        if not active:
            return self.handover.resting()
        try:
            self._services.signal_main()  # the handler follows code that runs already
        except MeshError as error:
            return f"{_PRICE}; {error}"
        return _PRICE

    def _rest(self, resting: bool, sessions: Collection[str]) -> None:
        self._table.rest(resting, sessions)
        self._services.call_later(0, self._watch_no_more)

    def _watch_no_more(self) -> None:
        """Update what is looked for after a change that is not a new table."""
        self._watch()

    def hits(self, _asked: ReadHits) -> Grouped[BreakHits, None]:
        """Return what has become of each breakpoint."""
        return Grouped(BreakHits(self._table.hits()))

    def set_post_mortem(self, asked: SetModes) -> Grouped[OwnMode, None]:
        """Replace the modes for endpoints that raise."""
        self._post_mortem.set(asked.modes)
        return Grouped(OwnMode(self._post_mortem.own))

    def complete(self, asked: CompleteAtRank) -> Completions:
        """Return the completions of the last word of a line, and whether the line is the name of a variable there."""
        session = self._sessions.named(asked.actor, asked.thread)
        frame = session.prompt.pdb.frame if session is not None and session.stopped else None
        if session is not None and frame is not None:
            spaces = (session.prompt.pdb.names, frame.f_globals)
            return Completions(complete(asked.text, *spaces), known=any(asked.text in space for space in spaces))
        for actor in self._services.actors():
            if actor.name == asked.actor and actor.instance is not None:
                return Completions(complete(asked.text, namespace_of(actor)))
        return Completions([])

    def proc_closing(self) -> None:
        """Release every stopped thread: the mesh is being stopped."""
        self._closing = True
        for session in self._sessions:
            session.close()

    def program_lost(self) -> None:
        """Resume every stopped thread, for good: nobody can type at its prompt any more."""
        self._closing = self._lost = True
        for session in self._sessions:
            session.resume()

    def serve(self) -> None:
        """Register the operations and hooks with the runtime."""
        services = self._services
        services.serve(Input, self.input)
        services.serve(InterruptRank, self.interrupt)
        services.serve(WithdrawInterrupt, self.withdraw)
        services.serve(SetBreaks, self.breaks)
        services.serve(ReadHits, self.hits)
        services.serve(SetModes, self.set_post_mortem)
        services.serve(CompleteAtRank, self.complete)
        services.serve(CancelLine, self.cancel_line)
        services.serve_later(Evaluate, self._evaluator.evaluate)
        services.serve(CancelExpression, self._evaluator.cancel)
        hooks.endpoint_error.append(self.endpoint_error)
        hooks.variables.append(lambda: variables_of(self._sessions))
        hooks.signalled.append(self.signalled)
        hooks.proc_closing.append(self.proc_closing)
        hooks.program_lost.append(self.program_lost)

    def forked(self) -> None:
        """In a forked child of user code: stop nothing and trace nothing."""
        self.handover.forked()  # before `sys.settrace`: the engine of an IDE would warn about it
        sys.settrace(None)
        for frame in above(sys._getframe(1)):
            if frame.f_trace is not None:
                del frame.f_trace
        self._sessions.clear()
        self._interrupts.close()
        self._table.clear_in_child()
        self._tracer.follow_new_threads()
        if self._monitor is not None:
            self._monitor.close()


_debuggers: dict[int, RankDebugger] = {}


def debugger_of(services: RankServices) -> RankDebugger:
    """Return the debugger of this rank, which must be loaded."""
    return _debuggers[id(services)]


def load(services: RankServices) -> None:
    """Make this process debuggable. Called once, by the first part that needs it."""
    debugger = _debuggers[id(services)] = RankDebugger(services)
    debugger.serve()
    headroom.call_later = services.call_later
    os.register_at_fork(after_in_child=debugger.forked)
    sys.breakpointhook = debugger.breakpointhook
    logging.getLogger("meshrt.debug").debug("debugger loaded in rank %d", services.rank)
