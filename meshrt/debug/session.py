"""Rank side: one session, from the first stop of an endpoint's thread to the end of that endpoint."""

from __future__ import annotations

import bdb
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from meshrt.debug.console import Console
from meshrt.debug.protocol import cap
from meshrt.debug.rank_pdb import RankPdb
from meshrt.debug.sources import SourceFetcher
from meshrt.hooks import Body, EndpointCall, RankServices

__all__ = ["RankSession", "aborted"]


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
        ended: Callable[[RankSession], None],
    ) -> None:
        self.call = call
        self.thread = thread
        self.sources = sources
        self.console = Console(self._prompted, self._printed)
        self._services = services
        self._seq = 0
        self._stop = 0
        self._since = 0.0
        self._reason = ""
        self._stack: list[RankPdb] = [RankPdb(self)]
        self._open = 0  # the prompt that waits for a line, or 0
        self._ended = ended
        self._closed = False

    # -- from the rank's code ------------------------------------------------------------------------------------------

    def breakpoint(self, frame: FrameType) -> None:
        """Stop here, unless a command that is being obeyed led here."""
        debugger = self._stack[-1]
        if debugger.at_prompt:
            self.console.write(
                f"breakpoint() at {frame.f_code.co_filename}:{frame.f_lineno} passed over: this rank is at a prompt "
                "(`debug EXPRESSION` steps into it)\n"
            )
            return
        debugger.stop_at(frame, "breakpoint")

    def failed(self, exception: BaseException) -> None:
        """Stop where ``exception`` was raised, before it unwinds."""
        debugger = self._stack[0]
        del self._stack[1:]
        # The debugger that stepped here still holds frames that are gone.
        post_mortem = RankPdb(self)
        post_mortem.aliases.update(debugger.aliases)
        self._stack.append(post_mortem)
        try:
            post_mortem.stop_after(exception)
        finally:
            self._stack.remove(post_mortem)

    def end(self) -> None:
        """End the session: the thread is not traced any more, and the root is told."""
        sys.settrace(None)
        if self._closed:
            return
        self._closed = True
        for debugger in self._stack:
            debugger.forget_breaks()
        displayhook: Any = sys.displayhook
        if isinstance(getattr(displayhook, "__self__", None), RankPdb):
            sys.displayhook = sys.__displayhook__
        self._ended(self)
        if self._seq:
            self._services.notify("debug.ended", self._key())

    def left_tracing(self) -> None:
        """Nothing will stop here any more by itself. For a thread of the user's own that is the end of the session."""
        if self.thread:
            self.end()

    # -- from the control thread ---------------------------------------------------------------------------------------

    def feed(self, seq: int, line: str | None) -> bool:
        """Hand in the answer to prompt ``seq``; returns False when that prompt is gone."""
        if seq != self._open:
            return False
        self._open = 0
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

    # -- what the debugger reports -------------------------------------------------------------------------------------

    def push(self, debugger: RankPdb) -> None:
        """A recursive debugger begins."""
        self._stack[-1].at_prompt = False
        self._stack.append(debugger)

    def pop(self, debugger: RankPdb) -> None:
        """A recursive debugger ended."""
        self._stack.remove(debugger)
        self._stack[-1].at_prompt = True

    @contextlib.contextmanager
    def at_prompt(self, debugger: RankPdb, reason: str) -> Iterator[None]:
        """Hold the rank's deadlines while ``debugger`` reads commands, then say how it went on."""
        if debugger.parent is not None:
            with debugger.reading():
                yield
            return
        self._stop += 1
        self._since = time.time_ns() / 1e9
        self._reason = reason or "step"
        self._services.flush_output()
        self._services.set_held(True)
        try:
            with debugger.reading():
                yield
        finally:
            self._services.set_held(False)
            self._services.notify("debug.resumed", {**self._key(), "how": _how(debugger), "text": self._text()})

    def _prompted(self, text: str, prompt: str) -> None:
        self._seq += 1
        self._open = self._seq
        self._services.notify(
            "debug.stopped",
            {
                **self._key(),
                "view": self.call.view,
                "endpoint": self.call.endpoint,
                "place": self._stack[-1].place().to_wire(),
                "reason": self._reason,
                "since": self._since,
                "seq": self._seq,
                "stop": self._stop,
                "prompt": cap(prompt, 2000),
                "text": cap(text),
            },
        )

    def printed(self) -> None:
        """Send what was printed without a prompt: by the commands of a breakpoint."""
        text = self.console.take()
        if text:
            self._printed(text)

    def _printed(self, text: str) -> None:
        self._services.notify("debug.output", {**self._key(), "text": cap(text)})

    def _text(self) -> str:
        return cap(self.console.take())

    def _key(self) -> Body:
        return {"actor": self.call.actor, "thread": self.thread}


def _how(debugger: RankPdb) -> str:
    if debugger.quitting:
        return "quit"
    return "continue" if debugger.post_mortem or debugger.goes_on() else "step"


def aborted(exception: BaseException) -> bool:
    """Whether ``exception`` is, or comes from, the debugger's own way to end an endpoint."""
    chain: BaseException | None = exception
    while chain is not None:
        if isinstance(chain, bdb.BdbQuit):
            return True
        chain = chain.__cause__ or chain.__context__
    return False
