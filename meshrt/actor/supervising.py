"""``__supervise__``: an actor is asked whether it handles a failure of a mesh that it has made.

It is asked at a safe point of its own thread: between two messages, or when the message that it serves waits in a
``get()``; with an event loop, in a task of its own. It is served like a message: the end of the rank waits for it, and
then interrupts it.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable

from meshrt.actor.ending import StopInterrupt
from meshrt.actor.errors import describe_exception, type_name
from meshrt.actor.faults import Decided, Supervise, mesh_failure
from meshrt.actor.mailbox import Mailbox
from meshrt.errors import one_line
from meshrt.hooks.operations import Answers
from meshrt.transport.driver import Driver
from meshrt.transport.pending import Pending
from meshrt.wire.codec import text_of
from meshrt.wire.errors import in_brief

__all__ = ["Supervising"]

_NAME = "__supervise__"
_HEADLINE = 300


class Supervising:
    """Serves the request of the root. On the control thread, unless said otherwise.

    Args:
        mailboxes: The actors of this rank.
        driver: Returns the driver of their calls.
    """

    def __init__(self, mailboxes: dict[str, Mailbox], driver: Callable[[], Driver]) -> None:
        self._mailboxes = mailboxes
        self._driver = driver

    def ask(self, asked: Supervise, answer: Answers[Decided]) -> None:
        """Ask an actor."""
        mailbox = self._mailboxes.get(asked.actor)
        method = None if mailbox is None else _method(type(mailbox.executor.actor))
        if mailbox is None or method is None:
            answer(Decided(False, asked=False), "")
            return
        failure = mesh_failure(asked.mesh_id, asked.mesh, asked.faults, asked.notes)
        executor = mailbox.executor
        errand = executor.errand(
            _NAME, lambda failure: executor.actor.__supervise__(failure), failure, functools.partial(_decided, answer)
        )
        errand.because = failure.error
        mailbox.give(errand, awaits=inspect.iscoroutinefunction(method))
        self._driver().alert(self._at_wait)

    def _at_wait(self, _pending: Pending) -> None:
        """Ask now what is to be asked while a thread waits for a call. Any thread."""
        thread = threading.get_ident()
        for mailbox in tuple(self._mailboxes.values()):
            if mailbox.thread == thread:
                mailbox.do_errands()
        if not any(mailbox.has_errands for mailbox in tuple(self._mailboxes.values())):
            self._driver().alarm = None


def _decided(answer: Answers[Decided], value: object, error: BaseException | None) -> None:
    """Send the result to the root. The actor's thread."""
    if inspect.isawaitable(value):  # cannot be awaited: this actor has no event loop, or the loop waits itself
        if inspect.iscoroutine(value):
            value.close()
        text = f"returned a {type(value).__name__}, which is not awaited: write `async def {_NAME}`"
        answer(Decided(False, text), "")
    elif error is None:
        answer(Decided(bool(value)), "")
    elif type(error) is StopInterrupt:
        answer(Decided(False, f"was stopped in {_NAME}()"), "")
    else:
        text = one_line(f"{type_name(error)}: {text_of(error)}", _HEADLINE)
        remote = in_brief(describe_exception(error))
        answer(Decided(False, f"raised in {_NAME}(): {text}", traceback=remote.traceback), "")


def _method(cls: type) -> object:
    """Return the class's own method; None if it has none."""
    # getattr would run code of a metaclass.
    return next((vars(base)[_NAME] for base in cls.__mro__ if _NAME in vars(base)), None)
