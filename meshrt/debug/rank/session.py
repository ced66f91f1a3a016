"""Rank side: one session, from the first stop of an endpoint's thread to the end of that endpoint."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol

from meshrt.debug.rank.breakpoints import MeshBreaks
from meshrt.debug.rank.console import Console
from meshrt.debug.rank.postmortem import exception_facts
from meshrt.debug.rank.rank_pdb import RankPdb, Stack
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.rank.suspended import may_break, raise_in, take_back
from meshrt.debug.rank.users_trace import UsersTrace, is_ours
from meshrt.hooks.facts import Body, EndpointCall
from meshrt.hooks.services import RankServices
from meshrt.inspect.capping import TEXT_LIMIT, cap
from meshrt.inspect.values import within

__all__ = ["RankSession"]


class Siblings(Protocol):
    """The sessions of this rank, as one of them sees the others."""

    def forget(self, session: RankSession) -> None:
        """``session`` has ended."""

    def named(self, actor: str, thread: str) -> RankSession | None:
        """Return the session that a person names so, if there is one."""

    def turn_of(self, session: RankSession) -> str:
        """Return the name of the call that ``session`` is of, if other calls of its thread have sessions too; or ""."""

    def exactly(self, call: EndpointCall | None) -> RankSession | None:
        """Return the session of a call on the calling thread; None: of the thread itself."""

    def users_trace(self, ident: int) -> UsersTrace:
        """Return what the user traces a thread with, as it was put aside."""

    def left(self) -> None:
        """A prompt was left: the thread goes on."""


class RankSession:
    """The stops of one thread during one endpoint call.

    Runs on the stopped thread, except `feed`, `resume` and `close`, which belong to the control thread.
    """

    def __init__(
        self,
        services: RankServices,
        call: EndpointCall,
        thread: str,
        sources: SourceFetcher,
        mesh_breaks: MeshBreaks,
        siblings: Siblings,
        numbers: Iterator[int],
    ) -> None:
        self.call = call
        self.thread = thread
        self.ident = threading.get_ident()
        self.sources = sources
        self.mesh_breaks = mesh_breaks
        self.console = Console(self._prompted, self._printed)
        #: What the next prompt tells beside its text: of a value that was printed, and what went wrong.
        self.facts: Body | None = None
        self.error = ""
        #: Values are shown in one line each, as somebody compares them with those of other ranks.
        self.brief = False
        #: How many lines of a value are shown; None: all.
        self.lines: int | None = None
        #: How many characters of an answer are sent.
        self.limit = TEXT_LIMIT
        #: Called once the thread stands at its next prompt.
        self.when_stopped: Callable[[], None] | None = None
        #: Which breakpoint of the mesh stopped it; 0: none.
        self.hit = 0
        #: ... and what its condition has raised; "": nothing.
        self.hit_error = ""
        self._services = services
        self._siblings = siblings
        self._numbers = numbers
        self._seq = 0
        self._since = 0.0
        self._reason = ""
        self._stack: list[RankPdb] = [RankPdb(self)]
        self._open = 0  # the prompt that waits for a line, or 0
        self._closed = False
        #: The line at which a trace function has just stopped, if it is going to be reported once more.
        self._mark: tuple[int, int] | None = None
        #: After an exception: what is told of it.
        self._raised: Body = {}
        #: A line is being obeyed, which a person may want to break.
        self._obeying = 0
        #: A line has come, and the thread has not begun with it.
        self._fed = False
        #: ... and has been asked to end from another thread.
        self._asynchronous = False
        self._breaking = threading.Lock()

    @property
    def debugger(self) -> RankPdb:
        """The debugger that reads lines now, or did last."""
        return self._stack[-1]

    @property
    def stopped(self) -> bool:
        """Whether a person works at a prompt of it, or a command of theirs is obeyed. Any thread."""
        return any(debugger.at_prompt for debugger in tuple(self._stack))

    @property
    def users_trace(self) -> UsersTrace:
        """What the thread was traced with before any session."""
        return self._siblings.users_trace(self.ident)

    def whose_turn(self, debugger: RankPdb) -> RankPdb | None:
        """Return the debugger for what the thread runs now: ``debugger``, which is of this session, or of another call.

        None: no session traces that.
        """
        call = self._services.current_call()
        if call is self.call or (self.thread and call is None):
            return debugger
        other = self._siblings.exactly(call)
        if other is self:
            return debugger
        return other.debugger if other is not None and other.debugger.wants_trace else None

    @property
    def stepping(self) -> bool:
        """Whether this thread is traced for the session."""
        return sys.gettrace() == self.debugger.trace_dispatch

    # -- from the rank's code ------------------------------------------------------------------------------------------

    def breakpoint(self, frame: FrameType) -> None:
        """Stop here, unless a command that is being obeyed led here."""
        if self.debugger.at_prompt:
            self.console.write(
                f"breakpoint() at {frame.f_code.co_filename}:{frame.f_lineno} passed over: this rank is at a prompt "
                "(`debug EXPRESSION` steps into it)\n"
            )
            return
        self.debugger.stop_at(frame, "breakpoint")

    def stop(self, frame: FrameType, reason: str, *, traced: bool = False) -> None:
        """Stop at ``frame``; ``traced``: its line is about to begin."""
        self.debugger.stop_at(frame, reason, traced=traced)

    def stop_suspended(self, stack: Stack, abort: Callable[[str], None]) -> None:
        """Stop while a coroutine waits; see `RankPdb.stop_suspended`."""
        self.debugger.stop_suspended(stack, abort)

    def stop_soon(self, frame: FrameType) -> None:
        """Stop at the next line of the user's, in ``frame`` or elsewhere: this session traces its thread anyway."""
        self.debugger.stop_soon(frame, "interrupt")

    def failed(self, exception: BaseException) -> None:
        """Stop where ``exception`` was raised, before it unwinds."""
        debugger = self._stack[0]
        del self._stack[1:]
        # The debugger that stepped here still holds frames that are gone.
        post_mortem = RankPdb(self)
        post_mortem.aliases.update(debugger.aliases)
        self._raised = exception_facts(exception)
        self._stack.append(post_mortem)
        try:
            post_mortem.stop_after(exception)
        finally:
            self._stack.remove(post_mortem)
            self._raised = {}

    def end(self) -> None:
        """End the session: the thread is not traced any more, and the root is told."""
        if self._closed:
            return
        if is_ours(sys.gettrace()):
            sys.settrace(None)
        self._closed = True
        for debugger in self._stack:
            debugger.forget_breaks()
        displayhook: Any = sys.displayhook
        if isinstance(getattr(displayhook, "__self__", None), RankPdb):
            sys.displayhook = sys.__displayhook__
        self._siblings.forget(self)
        self.mesh_breaks.follow(None)
        if self._seq and self._siblings.named(self.call.actor, self.thread) is None:
            self._services.notify("debug.ended", self._key())

    def left_tracing(self) -> None:
        """Nothing will stop here any more by itself. For a thread of the user's own that is the end of the session."""
        if self.thread:
            self.end()

    def mark(self, frame: FrameType) -> None:
        """A trace function stops at ``frame``: the same line is not to stop a second time."""
        self._mark = (id(frame), frame.f_lasti) if self.mesh_breaks.marks(frame) else None

    def take_mark(self, frame: FrameType) -> bool:
        """Whether a trace function has stopped at this very line just now."""
        mark, self._mark = self._mark, None
        return mark == (id(frame), frame.f_lasti)

    # -- from the control thread ---------------------------------------------------------------------------------------

    def feed(
        self, seq: int, line: str | None, *, brief: bool = False, limit: int = TEXT_LIMIT, lines: int | None = None
    ) -> bool:
        """Hand in the answer to prompt ``seq``; returns False when that prompt is gone."""
        if seq != self._open:
            return False
        self._fed = line is not None
        self._open = 0
        self.brief = brief
        self.limit = limit
        self.lines = lines
        self.console.feed(line)
        return True

    def resume(self, seq: int) -> bool:
        """Let the rank go on from prompt ``seq``, whatever kind of prompt it is."""
        if seq != self._open:
            return False
        self._open = 0
        self.console.release(closing=False)
        return True

    def close(self) -> None:
        """Abort the endpoint at this prompt, or at the next one: the mesh is being stopped."""
        self.console.release(closing=True)

    # -- lines that do not come to their end --------------------------------------------------------------------------

    @property
    def obeying(self) -> int:
        """Which line is being obeyed, or about to be, by its number; 0: none, or it reads. Any thread."""
        return self._seq if (self._obeying or self._fed) and self.stopped and not self._open else 0

    def line_begins(self) -> None:
        """A line is about to be obeyed."""
        self._obeying += 1
        self._fed = False

    def line_ends(self) -> None:
        """It was: nobody breaks it any more."""
        with self._breaking:
            self._obeying = max(0, self._obeying - 1)
            self._fed = False  # it has read more than itself
            if self._asynchronous:
                self._asynchronous = False
                take_back()

    def break_thread(self, ident: int) -> bool:
        """Raise KeyboardInterrupt in the line that this session's thread obeys, once C code returns; on another thread.

        Returns False if it is not the moment for that.
        """
        with self._breaking:
            if not self.obeying or self._asynchronous or not may_break(sys._current_frames().get(ident)):
                return False
            self._asynchronous = True
            raise_in(ident, KeyboardInterrupt)
            return True

    # -- what the debugger reports -------------------------------------------------------------------------------------

    def push(self, debugger: RankPdb) -> None:
        """A recursive debugger begins."""
        self._stack[-1].at_prompt = False
        self._stack.append(debugger)

    def pop(self, debugger: RankPdb) -> None:
        """A recursive debugger ended."""
        self._stack.remove(debugger)
        self._stack[-1].at_prompt = True

    def say_turn(self) -> None:
        """Name the call, if it takes turns with others that have been stopped too."""
        turn = self._siblings.turn_of(self)
        if turn:
            self.console.write(f"--{turn}--\n")

    @contextlib.contextmanager
    def at_prompt(self, debugger: RankPdb, reason: str) -> Iterator[None]:
        """Hold the rank's deadlines while ``debugger`` reads commands, then say how it went on."""
        if debugger.parent is not None:
            with debugger.reading():
                yield
            return
        self._since = time.time_ns() / 1e9
        self._reason = reason or "step"
        self._services.flush_output()
        self._services.set_held(True)
        try:
            with debugger.reading():
                when_stopped, self.when_stopped = self.when_stopped, None
                if when_stopped is not None:
                    when_stopped()
                yield
        finally:
            self.hit, self.hit_error = 0, ""
            self.error = ""  # of a line that is answered by this event
            self._services.set_held(False)
            self._services.notify("debug.resumed", {**self._key(), "how": _how(debugger), "text": self._text()})
            self._siblings.left()

    def _prompted(self, text: str, prompt: str) -> None:
        self._seq = next(self._numbers)
        self._fed = False  # what came was no line for pdb
        self._open = self._seq
        facts, self.facts = self.facts, None
        error, self.error = self.error, ""
        self._services.notify(
            "debug.stopped",
            {
                **self._key(),
                "view": _view(self.call),
                "endpoint": self.call.endpoint,
                "place": self.debugger.place().to_wire(),
                "reason": self._reason,
                "since": self._since,
                "seq": self._seq,
                "prompt": cap(prompt, 2000),
                "text": cap(text, self.limit),
                "facts": within(facts, self.limit),
                "error": cap(error, 2000),
                "breakpoint": self.hit,
                "breakpoint_error": cap(self.hit_error, 2000),
                **(self._raised if self._reason == "post-mortem" else {}),
            },
        )

    def printed(self) -> None:
        """Send what was printed without a prompt: by the commands of a breakpoint."""
        self.error = ""
        text = self.console.take()
        if text:
            self._printed(text)

    def _printed(self, text: str) -> None:
        self._services.notify("debug.output", {**self._key(), "text": cap(text, self.limit)})

    def _text(self) -> str:
        return cap(self.console.take(), self.limit)

    def _key(self) -> Body:
        return {"actor": self.call.actor, "thread": self.thread}


def _view(call: EndpointCall) -> list[Any]:
    """Return the view through which a call came; empty if there is none: the whole mesh is meant."""
    return [] if call.endpoint == "__cleanup__" else call.view


def _how(debugger: RankPdb) -> str:
    if debugger.quitting:
        return "quit"
    return "continue" if debugger.post_mortem or debugger.goes_on() else "step"
