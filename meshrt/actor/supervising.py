"""``__supervise__``: an actor is asked whether it handles a failure of a mesh that it has made.

It is asked at a safe point of its own thread: between two messages, or when the message that it serves waits in a
``get()``; an actor with an event loop in a task of its own.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable

from meshrt.actor.context import enter, leave
from meshrt.actor.ending import StopInterrupt
from meshrt.actor.errors import number_failure, type_name
from meshrt.actor.mailbox import Mailbox
from meshrt.errors import MeshFailure, one_line
from meshrt.hooks import Answer, Body, Raised, hooks
from meshrt.transport.driver import Driver
from meshrt.transport.faults import Fault, mesh_failure
from meshrt.transport.waiting import Pending
from meshrt.wire.codec import text_of

__all__ = ["Supervising"]

_HEADLINE = 300


class Supervising:
    """Serves the request of the root. On the control thread, unless said otherwise.

    Args:
        mailboxes: The actors of this rank.
        driver: Returns what their calls wait with.
        before_raised: Called before the hooks for what was raised are looked up.
    """

    def __init__(
        self,
        mailboxes: dict[str, Mailbox],
        driver: Callable[[], Driver],
        before_raised: list[Callable[[], object]],
    ) -> None:
        self._mailboxes = mailboxes
        self._driver = driver
        self._before_raised = before_raised

    def ask(self, body: Body, answer: Answer) -> None:
        """Ask an actor; ``answer`` gets ``{"handled": bool, "raised": text}``."""
        mailbox = self._mailboxes.get(body["actor"])
        if mailbox is None or not _has_method(type(mailbox.executor.actor)):
            answer({"handled": False}, "")
            return
        failure = mesh_failure(body["mesh_id"], body["mesh"], map(Fault.from_wire, body["faults"]), body["notes"])
        errand = _Errand(self, mailbox, failure, answer)
        mailbox.give(errand.run, errand.run_async)
        self._driver().alert(self._at_wait)

    def _at_wait(self, _pending: Pending) -> None:
        """Somebody waits for a call: what it is to be asked meanwhile is asked now. Any thread."""
        thread = threading.get_ident()
        for mailbox in tuple(self._mailboxes.values()):
            if mailbox.thread == thread:
                mailbox.do_errands()
        if not any(mailbox.has_errands for mailbox in tuple(self._mailboxes.values())):
            self._driver().alarm = None

    def tell(self, mailbox: Mailbox, error: BaseException) -> None:
        """Tell the hooks of what ``__supervise__`` has raised. The actor's thread."""
        hooks.run(self._before_raised)
        if hooks.raised:
            call = mailbox.executor.lone("__supervise__").call
            hooks.run(hooks.raised, Raised(number_failure(), error, call, time.monotonic_ns(), waited_for=True))


def _has_method(cls: type) -> bool:
    return any("__supervise__" in vars(base) for base in cls.__mro__)  # getattr would run code of a metaclass


class _Errand:
    """One failure to be decided on. The actor's thread."""

    def __init__(self, supervising: Supervising, mailbox: Mailbox, failure: MeshFailure, answer: Answer) -> None:
        self._supervising = supervising
        self._mailbox = mailbox
        self._failure = failure
        self._answer = answer

    def run(self) -> None:
        """Ask a class without an event loop."""
        token = enter(self._mailbox.executor.lone("__supervise__"))
        try:
            self._answer({"handled": bool(self._mailbox.executor.actor.__supervise__(self._failure))}, "")
        except BaseException as error:  # the failure goes up with it, whatever it is
            self._raised(error)
        finally:
            leave(token)
            self._mailbox.executor.end_if_forked()

    async def run_async(self) -> None:
        """Ask a class with one; its method may be a coroutine function."""
        token = enter(self._mailbox.executor.lone("__supervise__"))
        try:
            handled = self._mailbox.executor.actor.__supervise__(self._failure)
            self._answer({"handled": bool(await handled if inspect.isawaitable(handled) else handled)}, "")
        except BaseException as error:
            self._raised(error)
        finally:
            leave(token)

    def _raised(self, error: BaseException) -> None:
        text = one_line(f"{type_name(error)}: {text_of(error)}", _HEADLINE)
        self._answer({"handled": False, "raised": f"raised in __supervise__(): {text}"}, "")
        if type(error) is StopInterrupt:
            raise error
        self._supervising.tell(self._mailbox, error)
