"""Rank side: one session, from the first stop of an endpoint's thread to the end of that endpoint.

It holds the prompt of its thread, which reports by `Events`, and reports these events to the root.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

from meshrt.collectives.timeouts import limits, of_loaders
from meshrt.debug.rank.breakpoints import Hit, MeshBreaks
from meshrt.debug.rank.by_value import named_by_value
from meshrt.debug.rank.console import Console
from meshrt.debug.rank.postmortem import NOTHING_RAISED, exception_facts
from meshrt.debug.rank.prompt import Prompt
from meshrt.debug.rank.shared import Line, Shared, within_limit
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.debug.rank.stepper import Stepper
from meshrt.debug.rank.users_trace import TraceFunction, UsersTrace, is_ours
from meshrt.debug.rank_operations import Ended, Input, Printed, Resumed, Stopped
from meshrt.hooks.facts import EndpointCall
from meshrt.hooks.services import RankServices
from meshrt.inspect.capping import cap
from meshrt.inspect.facts import within
from meshrt.program.places import Place

__all__ = ["RankSession"]


class Siblings(Protocol):
    """The other sessions of this rank, as one session uses them."""

    def forget(self, session: RankSession) -> None:
        """Remove a session that has ended."""

    def named(self, actor: str, thread: str) -> RankSession | None:
        """Return the session that the user names so, if there is one."""

    def turn_of(self, session: RankSession) -> str:
        """Return the name of the session's call if other calls of its thread have sessions too, or ""."""

    def exactly(self, call: EndpointCall | None) -> RankSession | None:
        """Return the session of a call on the calling thread; None: of the thread itself."""

    def users_trace(self, ident: int) -> UsersTrace:
        """Return the user's own trace of a thread, as it was put aside."""

    def came(self) -> None:
        """Report that the thread is at a prompt."""

    def left(self) -> None:
        """Report that a prompt was left: the thread goes on."""


class RankSession:
    """The stops of one thread during one endpoint call.

    Runs on the stopped thread, except `feed` and `close`, which belong to the control thread.
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
        self.console = Console(self._prompted, self._printed)
        #: Called once the thread is stopped at its next prompt.
        self.when_stopped: Callable[[], None] | None = None
        self._services = services
        self._mesh_breaks = mesh_breaks
        self._siblings = siblings
        self._numbers = numbers
        self._seq = 0
        self._since = 0.0
        self._reason = ""
        self._line = Line(services.typed)
        self._shared = Shared(
            self, self.console, sources, self._line, mesh_breaks, lambda: siblings.users_trace(self.ident)
        )
        self._prompt = Prompt(self._shared)
        #: While the thread is stopped after an exception: its prompt, and the reported facts about the exception.
        self._post_mortem: Prompt | None = None
        self._raised = NOTHING_RAISED
        self._open = 0  # the number of the prompt that waits for a line, or 0
        self._closed = False
        #: The breakpoint of the mesh that stopped the thread.
        self._hit = Hit(0, "")

    @property
    def prompt(self) -> Prompt:
        """The prompt that reads lines now, or did last. Any thread."""
        return self._prompts()[-1]

    @property
    def steps(self) -> Stepper:
        """What stops the thread now, and knows where it is stopped."""
        return self.prompt.steps

    def _prompts(self) -> list[Prompt]:
        """Return the prompts of the thread; each except the first is inside the previous one."""
        post_mortem = self._post_mortem
        prompts = [self._prompt] if post_mortem is None else [self._prompt, post_mortem]
        while (inner := prompts[-1].inner) is not None:
            prompts.append(inner)
        return prompts

    @property
    def stopped(self) -> bool:
        """Whether the user works at a prompt of it, or a line of the user's runs. Any thread."""
        return any(prompt.is_open for prompt in self._prompts())

    @property
    def wants_trace(self) -> bool:
        """Whether its thread runs and will stop again by itself. Any thread."""
        return self.prompt.wants_trace

    @property
    def trace_function(self) -> TraceFunction:
        """The trace function of its prompt."""
        return self.prompt.pdb.trace_dispatch

    @property
    def traces(self) -> bool:
        """Whether the calling thread is traced by this session."""
        return sys.gettrace() == self.trace_function

    def place(self) -> Place:
        """Return where its thread is stopped, regardless of the frame that the user looks at. Any thread."""
        return self.steps.place()

    # -- from the rank's code ------------------------------------------------------------------------------------------

    def breakpoint(self, frame: FrameType) -> None:
        """Stop here, unless a line that was typed has called ``breakpoint()``."""
        if self.prompt.is_open:
            self.console.write(
                f"breakpoint() at {frame.f_code.co_filename}:{frame.f_lineno} ignored: this rank is at a prompt "
                "(`debug EXPRESSION` steps into it)\n"
            )
            return
        self.steps.stop_at(frame, "breakpoint")

    def failed(self, exception: BaseException) -> None:
        """Stop where ``exception`` was raised, before it unwinds."""
        # The prompt that was used for stepping still holds frames that have ended.
        post_mortem = Prompt(self._shared)
        post_mortem.pdb.adopt(self._prompt.pdb)
        self._raised = exception_facts(exception)
        self._post_mortem = post_mortem
        try:
            post_mortem.steps.stop_after(exception)
        finally:
            self._post_mortem = None
            self._raised = NOTHING_RAISED

    def end(self) -> None:
        """End the session: the thread is not traced any more, and the root is told."""
        if self._closed:
            return
        if is_ours(sys.gettrace()):
            sys.settrace(None)
        self._closed = True
        for prompt in self._prompts():
            prompt.pdb.forget_breaks()
        self._siblings.forget(self)
        self._mesh_breaks.follow(None)
        if self._seq and self._siblings.named(self.call.actor, self.thread) is None:
            self._services.report(Ended(*self._key))

    def hit(self, hit: Hit) -> None:
        """Note the breakpoint of the mesh that is about to stop the thread."""
        self._hit = hit
        if hit.error:
            self._line.error = hit.error
            self.console.write(f"{hit.error}\n")

    # -- from the control thread ---------------------------------------------------------------------------------------

    def feed(self, answer: Input) -> bool:
        """Supply the answer to a prompt, or resume the rank from it. Returns False if it does not wait any more."""
        if answer.seq != self._open:
            return False
        self._open = 0
        if answer.resume:
            self.console.release(closing=False)
            return True
        self._line.came(answer.line is not None)
        self._line.brief, self._line.lines = answer.brief, answer.lines
        self._line.limit = within_limit(answer.limit)
        self.console.feed(answer.line)
        return True

    def resume(self) -> None:
        """Resume the endpoint from this prompt, and from every later one."""
        self._open = 0
        self.console.release(closing=False)

    def close(self) -> None:
        """Abort the endpoint at this prompt, or at the next one: the mesh is being stopped."""
        self.console.release(closing=True)

    @property
    def running(self) -> int:
        """The number of the line that runs or is about to; 0: none, or it reads. Any thread.

        The thread is at a prompt, or a `debug` command runs code: its line runs then, although nothing is stopped.
        """
        return self._seq if self._line.runs and not self._open else 0

    def break_line(self, ident: int) -> bool:
        """Raise KeyboardInterrupt in the line that this session's thread runs, once C code returns. On another thread.

        Returns False if the line cannot be interrupted now.
        """
        return self._line.interrupt(ident, lambda: self.running != 0)

    # -- what the prompt tells -----------------------------------------------------------------------------------------

    def elsewhere(self) -> TraceFunction | None:
        """See `Events`."""
        call = self._services.current_call()
        if call is self.call or (self.thread and call is None):
            return None
        other = self._siblings.exactly(call)
        if other is self:
            return None
        if other is not None and other.wants_trace:
            return other.trace_function
        return lambda frame, _event, _arg: self._mesh_breaks.local(frame)

    def opens(self) -> None:
        """See `Events`."""
        turn = self._siblings.turn_of(self)
        if turn:  # its call takes turns with others that were stopped, too
            self.console.write(f"--{turn}--\n")

    @contextlib.contextmanager
    def reads(self, reason: str) -> Iterator[None]:
        """See `Events`."""
        # The deadlines of the rank are suspended meanwhile.
        prompt = self.prompt
        actor = next((actor for actor in self._services.actors() if actor.name == self.call.actor), None)
        if actor is not None and actor.instance is not None and actor.script is None:
            named_by_value(type(actor.instance))
        self._since = time.time_ns() / 1e9
        self._reason = reason or "step"
        self._services.flush_output()
        self._services.set_held(True)
        try:
            with prompt.opened():
                when_stopped, self.when_stopped = self.when_stopped, None
                if when_stopped is not None:
                    when_stopped()
                self._siblings.came()
                yield
        finally:
            self._hit = Hit(0, "")
            self._line.error = ""  # the error of a line that is answered by this event
            self._services.set_held(False)
            text = cap(self.console.take(), self._line.limit)
            self._services.report(Resumed(*self._key, prompt.steps.how, text))
            self._siblings.left()

    def printed(self) -> None:
        """See `Events`."""
        self._line.error = ""
        text = self.console.take()
        if text:
            self._printed(text)

    def over(self) -> None:
        """See `Events`."""
        if self.thread:  # no other event ends the session of a thread of the user's own
            self.end()

    # -- what the console tells ----------------------------------------------------------------------------------------

    def _prompted(self, text: str, prompt: str) -> None:
        self._seq = next(self._numbers)
        self._line.came(False)  # the answer was not a line for pdb
        self._open = self._seq
        facts, error = self._line.take()
        raised = self._raised if self._reason == "post-mortem" else NOTHING_RAISED
        self._services.report(
            Stopped(
                *self._key,
                endpoint=self.call.endpoint,
                seq=self._seq,
                prompt=cap(prompt, 2000),
                text=cap(text, self._line.limit),
                view=[] if self.call.endpoint == "__cleanup__" else self.call.view,
                place=self.place(),
                selected=self.steps.selected(),
                reason=self._reason,
                since=self._since,
                facts=within(facts, self._line.limit),
                error=cap(error, 2000),
                breakpoint=self._hit.id,
                breakpoint_error=cap(self._hit.error, 2000),
                stack=raised.stack,
                headline=raised.headline,
                limits=[*limits.read(), *of_loaders(self.steps.frames())],
            )
        )

    def _printed(self, text: str) -> None:
        self._services.report(Printed(*self._key, cap(text, self._line.limit)))

    @property
    def _key(self) -> tuple[str, str]:
        """Actor and thread."""
        return self.call.actor, self.thread
