"""Calls that have begun, and are to end: cancelled by their callers, or as the grace of a stop of their actor is over.

The control thread serves the links of the cancellations, as the thread of an actor, which runs its calls, does not read
meanwhile. A cancellation comes on the link of the call, too, behind the call: whichever is read first counts, so a call
that has not begun never does.

A plain endpoint is interrupted by a signal, also in a system call, and `CallInterrupt` is raised on the main thread if
that runs code of the user's (`StopInterrupt` if the actor is stopped). Code of the runtime is left alone: a wait for
another call is ended by itself. What else it does is over soon, so it is tried again as long as the call runs.
"""

from __future__ import annotations

import functools
import logging
import selectors
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import NoReturn, Protocol

from meshrt.actor.ending import CallInterrupt, StopInterrupt
from meshrt.actor.execute import Execution, Executor
from meshrt.actor.mailbox import Mailbox
from meshrt.actor.served import ServedLinks
from meshrt.actor.setup import SetUp
from meshrt.errors import ProtocolError
from meshrt.files import RUNTIME_FILES
from meshrt.hooks.services import Waited
from meshrt.hooks.table import hooks
from meshrt.transport.link import Link
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CANCEL, CUT

__all__ = ["Cancelling", "Interrupting"]

#: Seconds between two tries.
_AGAIN = 0.02


class Cancelling(ServedLinks):
    """Belongs to the control thread.

    Args:
        selector: As of `ServedLinks`.
        mailboxes: The actors of this process.
        interrupt: Interrupts a call that an actor runs on its thread; returns whether that is possible.
        is_over: ``is_over(actor, caller, call id)``: whether a STOP was answered.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        mailboxes: Mapping[str, Mailbox],
        interrupt: Callable[[Mailbox, Execution], bool],
        is_over: Callable[[str, Identity, int], bool],
    ) -> None:
        super().__init__(selector)
        self._mailboxes = mailboxes
        self._interrupt = interrupt
        self._is_over = is_over

    def _serve(self, link: Link, frame: Frame) -> None:
        if frame.kind == CUT:
            self._cut(link, *frame.header)
            return
        call_id, interrupt, actor = frame.header
        if frame.kind != CANCEL or type(call_id) is not int or type(actor) is not str:
            raise ProtocolError("expected the cancellation of a call")
        mailbox = self._mailboxes.get(actor)
        if mailbox is not None:
            running = mailbox.cancel_call(link.client, call_id)
            if running is not None and interrupt and not self._interrupt(mailbox, running):
                logging.getLogger("meshrt").warning(
                    "%s.%s() is not interrupted: only the actor that was spawned first in its process runs on the "
                    "main thread and can be interrupted",
                    actor,
                    running.context.endpoint,
                )

    def _cut(self, link: Link, call_id: int, actor: str) -> None:
        """The grace of a STOP is over. One that was answered meanwhile does not end the actor that begins next."""
        mailbox = self._mailboxes.get(actor)
        if mailbox is None or self._is_over(actor, link.client, call_id):
            return
        running = mailbox.cut()
        if running is not None:
            self._interrupt(mailbox, running)


class _Later(Protocol):
    def call_later(self, seconds: float, function: Callable[[], object]) -> None: ...


class _Process(Protocol):
    """What it needs of the process (`meshrt.actor.process.RankProcess`)."""

    @property
    def control(self) -> _Later: ...
    def signal_main(self) -> None: ...
    def interject(self, function: Callable[[Waited], None]) -> bool: ...


class Interrupting:
    """The control thread, unless said otherwise."""

    def __init__(self, process: _Process) -> None:
        self._process = process
        self._mailbox: Mailbox | None = None
        self._call: Execution | None = None

    def interrupt(self, mailbox: Mailbox, call: Execution) -> bool:
        """Interrupt a call. Returns False if it does not run on the main thread: other threads cannot be interrupted.

        Its actor is stopped, or else its caller has cancelled it.
        """
        if mailbox.thread != threading.main_thread().ident:
            return False
        if self._mailbox is None:
            hooks.signalled.append(self._signalled)
        self._mailbox, self._call = mailbox, call
        self._try(call)
        return True

    def _runs(self, call: Execution) -> bool:
        return self._mailbox is not None and self._mailbox.running is call and not call.interrupted

    def _try(self, call: Execution) -> None:
        if not self._runs(call):
            return
        if not self._process.interject(functools.partial(self._waits, call)):
            self._process.signal_main()
        self._process.control.call_later(_AGAIN, functools.partial(self._try, call))

    def _waits(self, call: Execution, _waited: Waited) -> None:
        """The main thread waits for an answer, maybe of another call by now. Main thread."""
        if self._runs(call):
            self._raise(call)

    def _signalled(self, frame: FrameType | None) -> None:
        """The signal has come. Main thread."""
        call = self._call
        if call is not None and self._runs(call) and _in_user_code(frame):
            self._raise(call)

    def _raise(self, call: Execution) -> NoReturn:
        call.interrupted = True
        if self._mailbox is not None and self._mailbox.executor.is_cut:
            raise StopInterrupt("this actor is stopping")
        call.withdrawn = True
        raise CallInterrupt


#: What calls user code that may be interrupted.
_CALLERS = tuple(
    function.__code__ for function in (Executor.run, Executor.run_async, Executor.build, SetUp.run, SetUp.run_async)
)


def _in_user_code(frame: FrameType | None) -> bool:
    """Whether no code of the runtime runs there but what has called the endpoint, or what builds the actor."""
    while frame is not None and not frame.f_code.co_filename.startswith(RUNTIME_FILES):
        frame = frame.f_back
    return frame is not None and frame.f_code in _CALLERS
