"""The debugger in a rank: what ``breakpoint()`` does there.

Loaded by the first ``breakpoint()`` of the process. A session belongs to one thread and one endpoint call; the table
below is keyed by thread, as that is what ``breakpoint()`` and the hooks know; lines come in by (actor, thread name).
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from typing import Any

from meshrt.debug.session import RankSession, aborted
from meshrt.debug.sources import SourceFetcher
from meshrt.debug.stepping import caller_frame
from meshrt.hooks import Body, EndpointCall, RankServices, hooks

__all__ = ["RankDebugger", "load"]


class RankDebugger:
    """All sessions of this process."""

    def __init__(self, services: RankServices) -> None:
        self._services = services
        self._sessions: dict[int, RankSession] = {}
        self._sources = SourceFetcher(services)
        self._last_call: EndpointCall | None = None
        self._closing = False
        self._post_mortem = os.environ.get("MESHRT_POST_MORTEM") != "0"

    # -- on the thread that runs user code -----------------------------------------------------------------------------

    def breakpointhook(self, *args: Any, **kwargs: Any) -> None:
        """Stop the calling thread. Of the arguments only ``header`` means something: a line to show first."""
        frame = caller_frame(sys._getframe(1))
        if frame is None or os.environ.get("PYTHONBREAKPOINT") == "0":
            return
        session = self._session()
        if kwargs.get("header"):
            session.console.write(f"{kwargs['header']}\n")
        session.breakpoint(frame)

    def endpoint_exit(self, call: EndpointCall) -> None:
        """End the session of the endpoint that ended."""
        session = self._sessions.pop(threading.get_ident(), None)
        if session is not None:
            session.end()

    def endpoint_error(self, call: EndpointCall, exception: BaseException) -> None:
        """After a stop in this call: show where it failed, before the caller gets the exception."""
        session = self._sessions.get(threading.get_ident())
        if session is None or not self._post_mortem or self._closing:
            return
        if isinstance(exception, Exception) and not aborted(exception) and exception.__traceback__ is not None:
            session.failed(exception)

    def _session(self) -> RankSession:
        ident = threading.get_ident()
        session = self._sessions.get(ident)
        if session is None:
            call = self._services.current_call()
            thread = "" if call is not None else self._thread_name()
            call = call or self._call_of_thread()
            self._last_call = call
            self._sources.new_session()
            session = self._sessions[ident] = RankSession(self._services, call, thread, self._sources, self._forget)
            if self._closing:
                session.close()
        return session

    def _forget(self, session: RankSession) -> None:
        for ident, known in list(self._sessions.items()):
            if known is session:
                del self._sessions[ident]

    def _thread_name(self) -> str:
        """Return a name for a thread of the user's own that can be typed and is unique on this rank."""
        name = re.sub(r"[^\w.-]+", "_", threading.current_thread().name.split(" ")[0]).strip("_") or "thread"
        taken = {session.thread for session in list(self._sessions.values())}
        return f"{name}-{threading.get_native_id()}" if name in taken else name

    def _call_of_thread(self) -> EndpointCall:
        """Say to which endpoint call a thread of the user's own belongs: the one that runs, or the last one."""
        calls = list(self._services.current_calls())
        if calls:
            return calls[-1]
        if self._last_call is not None:
            return self._last_call
        rank = self._services.rank
        return EndpointCall(self._services.mesh_id, "thread", rank, "", [])

    # -- on the control thread -----------------------------------------------------------------------------------------

    def input(self, body: Body) -> Body:
        """Hand a person's line, or an action, to the session that it is meant for."""
        for session in list(self._sessions.values()):
            if session.call.actor == body["actor"] and session.thread == body.get("thread", ""):
                seq = int(body["seq"])
                resume = body.get("action") == "continue"
                return {"accepted": session.resume(seq) if resume else session.feed(seq, body.get("line"))}
        return {"accepted": False}

    def proc_closing(self) -> None:
        """Release every stopped thread: the mesh is being stopped."""
        self._closing = True
        for session in list(self._sessions.values()):
            session.close()


def load(services: RankServices) -> None:
    """Make this process debuggable: called once, by the first ``breakpoint()``."""
    debugger = RankDebugger(services)
    services.operations["debug.input"] = debugger.input
    hooks.endpoint_exit.append(debugger.endpoint_exit)
    hooks.endpoint_error.append(debugger.endpoint_error)
    hooks.proc_closing.append(debugger.proc_closing)
    sys.breakpointhook = debugger.breakpointhook
    logging.getLogger("meshrt.debug").debug("debugger loaded in rank %d", services.rank)
