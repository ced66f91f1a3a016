"""What a plug-in may see of the runtime, and how it is reached without being imported.

The runtime never imports a plug-in. It knows plug-ins by dotted name (`PLUGINS`), loads one on first use, and calls
whatever the plug-in put into the tables below. Three services make a debugger possible from outside:

* a **control operation**: a named request that the control thread of a rank (or the root) serves,
* a **hold**: deadlines stand still while a rank is stopped,
* ``endpoint_error``: called before the exception unwinds, with the live traceback.

Hooks are optional, typed and synchronous; an empty hook costs one test of an empty list. A hook that fails is reported
and switched off, and the program goes on; with ``strict`` (the tests) it raises.

Names are ``"<plug-in>.<operation>"``: an operation or event whose plug-in is not loaded yet loads it.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = [
    "PLUGINS",
    "Body",
    "EndpointCall",
    "Hooks",
    "RankServices",
    "RootServices",
    "ToolClient",
    "Waited",
    "hooks",
    "plugin_of",
]

Body = dict[str, Any]
"""The arguments or the result of an operation: what msgpack can carry (str keys; no tuples come back)."""

#: Plug-in name -> (module loaded in a rank, module loaded in the root). Each module has ``load(services)``.
PLUGINS: dict[str, tuple[str, str]] = {
    "debug": ("meshrt.debug.rank", "meshrt.debug.broker"),
}


@dataclass(slots=True)
class EndpointCall:
    """One run of an endpoint (or of ``__init__``) on this rank, as hooks see it."""

    mesh_id: str
    actor: str
    rank: int
    endpoint: str
    #: The view through which the call came: ``[labels, offset, sizes, strides]`` (`Shape.from_wire`).
    view: list[Any]


class RankServices(Protocol):
    """What a plug-in finds in a rank. Any thread may call these, unless said otherwise."""

    mesh_id: str
    rank: int
    pid: int
    #: name -> handler, run on the control thread; must not block and must not run user code.
    operations: dict[str, Callable[[Body], Body | None]]

    def current_call(self) -> EndpointCall | None:
        """Return the endpoint call that runs on the calling thread, or None."""

    def current_calls(self) -> Sequence[EndpointCall]:
        """Return the endpoint calls that run on this rank now, the latest last (for a thread that user code made)."""

    def notify(self, event: str, body: Body) -> None:
        """Send an event to the root's side of the plug-in; returns at once, keeps the order."""

    def request(self, operation: str, body: Body, timeout: float) -> Body:
        """Ask the root and wait (not on the control thread). Raises TimeoutError, or MeshError with a refusal."""

    def set_held(self, held: bool) -> None:
        """Say that a thread of this rank was stopped (or let go) by a person: deadlines stand still. Counts."""

    def flush_output(self) -> None:
        """Push out what user code printed so far."""


class ToolClient(Protocol):
    """A terminal (or a program) connected to the root's control socket. Used on the root's loop."""

    id: int
    #: pid of the process at the other end.
    pid: int

    def push(self, event: str, body: Body) -> None:
        """Send an event to the client; never blocks. A client that does not read is disconnected."""


class Waited(Protocol):
    """What the script's main thread waits for (a `Future`)."""

    def done(self) -> bool: ...

    def add_done_callback(self, function: Callable[[Any], object], /) -> None: ...


class RootServices(Protocol):
    """What a plug-in finds in the root. On the root's loop, unless said otherwise."""

    run_id: str
    #: name -> coroutine function (client, body) -> body, for requests of terminals.
    tool_operations: dict[str, Callable[[ToolClient, Body], Awaitable[Body | None]]]
    #: name -> function (mesh id, base rank, body), for events sent with `RankServices.notify`.
    rank_events: dict[str, Callable[[str, int, Body], None]]
    #: name -> function (mesh id, base rank, body) -> body, for `RankServices.request`.
    rank_operations: dict[str, Callable[[str, int, Body], Body | None]]
    #: called with every client that is gone.
    client_gone: list[Callable[[ToolClient], None]]
    #: called as ``fn(mesh id, base rank, description)`` when a rank's process has ended ("was killed by SIGKILL").
    rank_gone: list[Callable[[str, int, str], None]]
    #: called when the program is about to end (or every mesh is stopped); do not block.
    closing: list[Callable[[], None]]

    def meshes(self) -> Sequence[Mapping[str, Any]]:
        """Return what runs: ``{"mesh_id", "name", "shape" (wire form), "host": {rank: name}, "pid": {rank: pid},
        "alive": [ranks], "actors": [{"name", "class"}]}`` of each mesh."""

    def request_rank(self, mesh_id: str, rank: int, operation: str, body: Body) -> Awaitable[Body]:
        """Run a control operation on a rank. Raises SupervisionError at once if the rank is gone."""

    def send_rank(self, mesh_id: str, rank: int, operation: str, body: Body) -> None:
        """Like `request_rank` without an answer."""

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Run ``function`` on the root's loop after ``seconds``."""

    def announce(self, text: str) -> None:
        """Print a line of the runtime's own on the program's terminal (standard error). Any thread."""

    def interject(self, function: Callable[[Waited], None]) -> bool:
        """Run ``function`` on the script's main thread if it waits in a ``get()`` now.

        ``function`` gets what is waited for; answers go on being read meanwhile, and the wait goes on afterwards.
        Returns False if the main thread does not wait. Any thread.
        """

    def main_thread_waits(self) -> bool:
        """Whether the script's main thread waits in a ``get()`` now. Any thread."""


class Hooks:
    """The table of hooks of this process. Plug-ins append to the lists; the runtime calls `run`."""

    def __init__(self) -> None:
        #: Rank side, on the actor's thread.
        self.endpoint_enter: list[Callable[[EndpointCall], None]] = []
        self.endpoint_exit: list[Callable[[EndpointCall], None]] = []
        self.endpoint_error: list[Callable[[EndpointCall, BaseException], None]] = []
        #: Rank side, on the control thread.
        self.proc_closing: list[Callable[[], None]] = []
        self.strict = bool(os.environ.get("MESHRT_STRICT_HOOKS"))
        self._loaded: dict[tuple[str, bool], object] = {}
        self._loading = threading.RLock()

    def run(self, functions: list[Any], *args: Any) -> None:
        """Call each function with ``args``; one that fails is reported and taken out of the list."""
        for function in tuple(functions):
            try:
                function(*args)
            except Exception:
                if self.strict:
                    raise
                if function in functions:  # two threads may have failed in it at once
                    functions.remove(function)
                import logging  # start-up: rare

                logging.getLogger("meshrt").exception("hook %r failed and was switched off", function)

    def clear(self) -> None:
        """Forget every hook: this process is a forked child and no part of the program any more."""
        for functions in (self.endpoint_enter, self.endpoint_exit, self.endpoint_error, self.proc_closing):
            functions.clear()

    def load(self, plugin: str, services: RankServices | RootServices, *, in_root: bool) -> bool:
        """Load a plug-in by its name, once per program. Returns False when there is no such plug-in."""
        with self._loading:  # two actors of a rank may stop at once
            if self._loaded.get((plugin, in_root)) is services:
                return True
            if plugin not in PLUGINS:
                return False
            importlib.import_module(PLUGINS[plugin][in_root]).load(services)
            self._loaded[plugin, in_root] = services
            return True


def plugin_of(name: str) -> str:
    """Return the plug-in that serves an operation or event: ``"debug.list"`` -> ``"debug"``."""
    return name.partition(".")[0]


hooks = Hooks()
"""The hooks of this process."""
