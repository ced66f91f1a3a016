"""The hooks: lists of functions that plug-ins append to and the runtime calls.

Hooks of a rank: ``proc_ready`` (once, when it serves), ``endpoint_enter`` / ``endpoint_exit`` / ``endpoint_error``,
``raised`` (every uncaught exception of user code, also in threads and tasks), ``variables`` (names that hold memory),
``pulse`` (on the control thread, at each ping of the host agent, about once a second), ``proc_closing``,
``program_lost``. In any process: ``message_sent`` (a call is about to be sent), ``hold_changed`` (deadlines are
suspended, or resumed). The plug-ins in `meshrt.hooks.plugins.PULSE_PLUGINS` need the pulse: they are loaded at the
first ping of a rank instead of on first use.

Hooks are optional, typed and synchronous; an empty hook costs one test of an empty list. A hook that fails is reported
and switched off, and the program goes on; with ``strict`` (the tests) it raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from meshrt.hooks.facts import EndpointCall, Raised, Variable

if TYPE_CHECKING:
    from meshrt.hooks.services import PendingCall

__all__ = ["Hooks", "hooks"]

F = TypeVar("F", bound=Callable[..., object])


class Hooks:
    """The table of hooks of this process. Plug-ins append to the lists; the runtime calls `run`."""

    def __init__(self) -> None:
        #: Rank side, once, on the main thread, before it serves its first actor.
        self.proc_ready: list[Callable[[], None]] = []
        #: Rank side, on the actor's thread.
        self.endpoint_enter: list[Callable[[EndpointCall], None]] = []
        self.endpoint_exit: list[Callable[[EndpointCall], None]] = []
        self.endpoint_error: list[Callable[[EndpointCall, BaseException], None]] = []
        #: Rank side, on the thread that raised, once the caller has been answered.
        self.raised: list[Callable[[Raised], None]] = []
        #: Rank side, on the control thread.
        self.proc_closing: list[Callable[[], None]] = []
        #: Rank side, on the control thread: the program is gone, and the process goes on without it (a rank that has
        #: joined). What holds user code resumes it.
        self.program_lost: list[Callable[[], None]] = []
        #: Rank side, on the control thread, about once a second; must not block.
        self.pulse: list[Callable[[], None]] = []
        #: Rank side, on the main thread, in a signal handler: `RankServices.signal_main` was called. Gets the stack
        #: frame that was interrupted. What it raises is raised there.
        self.signalled: list[Callable[[FrameType | None], None]] = []
        #: Any process, on the thread that calls: a call is about to be sent; gets its number in this process.
        self.message_sent: list[Callable[[int], None]] = []
        #: Rank side, on a thread of the runtime: who holds memory of which the memory view tells. What they return is
        #: read at once, and not kept.
        self.variables: list[Callable[[], Iterable[Variable]]] = []
        #: Root side, on a thread of the script: a call was sent.
        self.call_sent: list[Callable[[PendingCall], None]] = []
        #: Any process, any thread: deadlines are suspended from now on (True), or resumed (False).
        self.hold_changed: list[Callable[[bool], None]] = []
        self.strict = bool(os.environ.get("MESHRT_STRICT_HOOKS"))

    def run(self, functions: list[F], *args: object) -> None:
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

                try:
                    logging.getLogger("meshrt").exception("hook %r failed and was switched off", function)
                except Exception:  # the error, or the hook, cannot be shown
                    logging.getLogger("meshrt").error("a hook failed and was switched off")

    @staticmethod
    def add(functions: list[F], function: F) -> Callable[[], None]:
        """Add a function to a hook. Returns a function that takes it out; a repeated call has no effect."""
        functions.append(function)

        def remove() -> None:
            if function in functions:  # one that has failed is out already
                functions.remove(function)

        return remove

    def clear(self) -> None:
        """Forget every hook: this process is a forked child and no part of the program any more."""
        for functions in vars(self).values():
            if isinstance(functions, list):
                functions.clear()


hooks = Hooks()
"""The hooks of this process."""
