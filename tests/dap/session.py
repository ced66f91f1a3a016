"""One debug session of an `Ide`: its connection, and what the IDE knows of the process at the other end."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import Future
from typing import TYPE_CHECKING

from meshrt.hooks.facts import Body
from tests.dap.client import SECONDS, Address, Client, Event, RequestFailed

if TYPE_CHECKING:
    from tests.dap.ide import Ide

__all__ = ["INITIALIZE", "Session"]

#: What VS Code says of itself.
INITIALIZE = {
    "clientID": "vscode",
    "clientName": "Visual Studio Code",
    "adapterID": "debugpy",
    "pathFormat": "path",
    "linesStartAt1": True,
    "columnsStartAt1": True,
    "locale": "en",
    "supportsVariableType": True,
    "supportsVariablePaging": True,
    "supportsRunInTerminalRequest": True,
    "supportsProgressReporting": True,
    "supportsInvalidatedEvent": True,
    "supportsMemoryReferences": True,
    "supportsArgsCanBeInterpretedByShell": True,
    "supportsMemoryEvent": True,
    "supportsANSIStyling": True,
}


class Session:
    """Made by an `Ide`. Any thread may use it."""

    def __init__(self, ide: Ide, address: Address, configuration: Body) -> None:
        self.ide = ide
        self.address = address
        self.configuration = configuration
        self.name = str(configuration["name"])
        self.capabilities: Body = {}
        #: By path: what the adapter has made of the breakpoints; kept up to date by its events.
        self.breakpoints: dict[str, list[Body]] = {}
        #: Whether it has got, or gets now, what is to be stopped at; what comes later is for it, too.
        self.configured = False
        self.attached = False
        #: Ended by its adapter or by this IDE.
        self.over = False
        #: The body of the event `stopped`, while the process stands.
        self.stop: Body | None = None
        self._client: Client | None = None
        self._killed = self._leaving = False

    def __str__(self) -> str:
        state = "ended" if self.over else "attached" if self.attached else "being attached"
        if self.stop is not None:
            state += f", stands ({self.stop.get('reason')})"
        heard = [event.name for event in self.client.events[-12:]] if self._client else ["not connected"]
        return f"{self.name}: {state}; heard: {', '.join(heard) or 'nothing'}"

    @property
    def client(self) -> Client:
        """The connection. Raises ConnectionError if there is none yet."""
        if self._client is None:
            raise ConnectionError(f"{self.name} is not connected")
        return self._client

    @property
    def output(self) -> str:
        """What has been written to its debug console."""
        return self._client.output if self._client else ""

    # ---- coming and going --------------------------------------------------------------------------------------------

    def attach(self) -> None:
        """Connect, and begin with the configuration; returns when the adapter has confirmed that.

        A session that is refused says goodbye, too. Raises `RequestFailed`, ConnectionError or `Violation`.
        """
        client = Client(self.address, answer=self._answer, on_event=self._heard, on_end=self._ended)
        with self.ide.changed:
            self._client = client
        if self._killed:
            client.close()
        known = {"supportsStartDebuggingRequest": True} if self.ide.start_debugging else {}
        self.capabilities = client.request("initialize", **INITIALIZE, **known)
        attaching = client.begin(self.configuration["request"], **self.configuration)
        try:
            self._begin(attaching)
        except RequestFailed:
            self._leave()
            raise
        with self.ide.changed:
            self.attached = True
            self.ide.changed.notify_all()

    def _begin(self, attaching: Future[Body]) -> None:
        client = self.client
        client.wait_event("initialized", unless=attaching)
        self._configure()
        if self.capabilities.get("supportsConfigurationDoneRequest"):
            client.request("configurationDone")
        # Asked for at once, before the adapter has confirmed anything.
        threads = client.begin("threads")
        client.result_of(attaching, "attach")
        client.result_of(threads, "threads")

    def _configure(self) -> None:
        with self.ide.changed:
            self.configured = True
            paths = list(self.ide.breakpoints)
        # All of it is sent before any of it is answered.
        breakpoints = {path: self._begin_breakpoints(path) for path in paths}
        others = []
        if self.capabilities.get("supportsFunctionBreakpoints"):
            others.append(self.client.begin("setFunctionBreakpoints", breakpoints=[]))
        others.append(self._begin_exceptions())
        for path, answer in breakpoints.items():
            self._take_breakpoints(path, answer)
        for answer in others:
            self.client.result_of(answer, "what is to be stopped at")

    def disconnect(self, terminate: bool = False) -> None:
        """Say goodbye, once; the process goes on."""
        with self.ide.changed:
            leaving, self._leaving = self._leaving, True
        if not leaving:
            # debugpy's own adapter may hang up before its answer is out; either way it is over.
            with contextlib.suppress(ConnectionError):
                self.client.request("disconnect", restart=False, **({"terminateDebuggee": True} if terminate else {}))
        self.client.close()

    def cut(self) -> None:
        """End the connection without a word; it ends at any moment after that."""
        self._killed = True
        if self._client is not None:
            self._client.cut()

    def kill(self) -> None:
        """End the connection without a word."""
        self.cut()
        if self._client is not None:
            self._client.close()

    def wait_over(self, seconds: float = SECONDS) -> None:
        """Wait until the session has ended."""
        self.ide.wait_for(lambda: self.over, f"the end of {self.name}", seconds)

    # ---- what a person does ------------------------------------------------------------------------------------------

    def send_breakpoints(self, path: str) -> list[Body]:
        """Send the breakpoints of a file; returns what the adapter makes of each."""
        return self._take_breakpoints(path, self._begin_breakpoints(path))

    def _begin_breakpoints(self, path: str) -> Future[Body]:
        wanted = self.ide.breakpoints[path]
        lines = [one["line"] for one in wanted]
        source = {"name": os.path.basename(path), "path": path}
        return self.client.begin("setBreakpoints", source=source, lines=lines, breakpoints=wanted, sourceModified=False)

    def _take_breakpoints(self, path: str, answer: Future[Body]) -> list[Body]:
        found: list[Body] = self.client.result_of(answer, "setBreakpoints")["breakpoints"]
        with self.ide.changed:
            self.breakpoints[path] = found
            self.ide.changed.notify_all()
        return found

    def send_exceptions(self) -> None:
        """Send the kinds of exceptions to stop at, those that the adapter proposes where nobody has chosen any."""
        self.client.result_of(self._begin_exceptions(), "setExceptionBreakpoints")

    def _begin_exceptions(self) -> Future[Body]:
        offered = self.capabilities.get("exceptionBreakpointFilters") or []
        chosen = self.ide.exceptions
        if chosen is None:
            chosen = [one["filter"] for one in offered if one.get("default")]
        if not self.capabilities.get("supportsExceptionFilterOptions"):
            return self.client.begin("setExceptionBreakpoints", filters=chosen)
        options = [{"filterId": one} for one in chosen]
        return self.client.begin("setExceptionBreakpoints", filters=[], filterOptions=options)

    def threads(self) -> list[Body]:
        """The threads of the process, each with ``id`` and ``name``."""
        return list(self.client.request("threads")["threads"])

    @property
    def main(self) -> int:
        """The number of the main thread: that of the thread which the engine sees first is 1, whichever that is."""
        return next(int(thread["id"]) for thread in self.threads() if thread["name"] == "MainThread")

    def stack(self, thread: int | None = None, levels: int = 20) -> list[Body]:
        """The stack frames of a thread, the innermost first; of the one that stopped, if none is named."""
        thread = self._thread() if thread is None else thread
        answer = self.client.request("stackTrace", threadId=thread, startFrame=0, levels=levels)
        return list(answer["stackFrames"])

    def evaluate(self, expression: str, context: str = "repl", frame: int | None = None) -> str:
        """The value of an expression, as text: in a stack frame, by default the innermost of the thread that stopped.

        While the process runs there is no stack frame, as in the debug console.
        """
        if frame is None and self.stop is not None:
            frame = self.stack(levels=1)[0]["id"]
        place = {} if frame is None else {"frameId": frame}
        return str(self.client.request("evaluate", expression=expression, context=context, **place)["result"])

    def variables(self, scope: str = "Locals") -> dict[str, str]:
        """The variables of a scope of the innermost stack frame, as text."""
        scopes = self.client.request("scopes", frameId=self.stack(levels=1)[0]["id"])["scopes"]
        chosen = [one for one in scopes if one["name"] == scope]
        if not chosen:
            raise LookupError(f"expected one of the scopes {[one['name'] for one in scopes]}, got {scope!r}")
        found = self.client.request("variables", variablesReference=chosen[0]["variablesReference"])
        return {one["name"]: one["value"] for one in found["variables"]}

    def resume(self, how: str = "continue", thread: int | None = None) -> None:
        """Let the process go on: ``continue``, or the steps ``next``, ``stepIn`` and ``stepOut``."""
        thread = self._thread() if thread is None else thread
        # Before it is sent: a stop that comes before the answer is the next one already.
        with self.ide.changed:
            self.stop = None
        self.client.request(how, threadId=thread)

    def pause(self, thread: int | None = None) -> None:
        """Ask the process to stop; `Ide.stopped` tells when it has."""
        self.client.request("pause", threadId=self._thread() if thread is None else thread)

    def _thread(self) -> int:
        stop = self.stop
        return int(stop["threadId"] if stop and "threadId" in stop else self.threads()[0]["id"])

    # ---- what the adapter tells; on the connection's threads ---------------------------------------------------------

    def _heard(self, event: Event) -> None:
        with self.ide.changed:
            match event.name:
                case "stopped":
                    self.stop = event.body
                case "continued":
                    self.stop = None
                case "breakpoint" if event.body.get("reason") == "changed":
                    self._changed(event.body["breakpoint"])
                case "debugpyAttach":
                    self.ide.spawn(self.ide.announced, event.body)
                case "terminated":
                    self.ide.spawn(self._leave)
            self.ide.changed.notify_all()

    def _changed(self, changed: Body) -> None:
        for known in (one for found in self.breakpoints.values() for one in found):
            if known.get("id") == changed.get("id"):
                known.update(changed)

    def _answer(self, command: str, arguments: Body) -> Body:
        if command != "startDebugging":
            raise NotImplementedError(f"expected startDebugging, got {command}")
        problem = self.ide.announced({**arguments["configuration"], "request": arguments["request"]})
        if problem:
            raise RuntimeError(problem)
        return {}

    def _leave(self) -> None:
        try:
            self.disconnect()
        except ConnectionError:
            pass  # the adapter has not waited for the goodbye: there is none to be said

    def _ended(self) -> None:
        with self.ide.changed:
            self.over, self.stop = True, None
            self.ide.changed.notify_all()
