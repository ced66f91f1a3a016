"""A rank in a process that something else has started: a launcher of scripts, or a pool.

::

    main thread      the script: one call of the actor `main`, which began before the process joined
    further actors   a thread each
    meshrt-control   the control thread

The process belongs to whatever has started it. It keeps its standard streams, its signals but one, its exit status and
its `__main__`; the program never ends it. When the program is gone it goes on as if there had been none.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from msgspec.structs import replace

from meshrt.actor.actors import ActorHost
from meshrt.actor.context import ActorInstance, CallContext
from meshrt.actor.errors import describe_exception, tell_stray
from meshrt.actor.execute import Execution, Executor
from meshrt.actor.mailbox import Mailbox
from meshrt.actor.process import MAIN_SIGNAL, RankProcess
from meshrt.actor.setup import SetUp
from meshrt.errors import RemoteException
from meshrt.hooks.facts import IN_SCRIPT
from meshrt.hooks.operations import Report
from meshrt.hooks.table import hooks
from meshrt.host.child import Birth, Plumbing
from meshrt.host.pulse import STACK_SIGNAL
from meshrt.selection import Shape
from meshrt.wire.errors import in_brief
from meshrt.wire.operations import ActorBegun, ActorSpawned, Unhandled
from meshrt.wire.tree import Leaving

__all__ = ["JoinedRank", "MainCall"]

#: Seconds for the last messages of the control thread.
_SETTLE = 1.0
_CLOSED = "the script has closed the descriptors of meshrt; it continues, but is no longer visible to meshrt commands"


class MainCall:
    """The call that runs on the main thread of a process from its start: known to the program once it has joined.

    On the main thread.

    Args:
        actor, endpoint: What it is shown as.
        script: What is shown as the actor itself: its attributes are its names.
        shape, rank: The mesh of the process and its place there; -1: it is told when it joins.
        quiet: The end of the program is not told on standard error.
    """

    def __init__(
        self, actor: str, endpoint: str, script: object, shape: Shape, rank: int, *, quiet: bool = False
    ) -> None:
        point = shape.extent.point(max(0, rank))
        self.script = script
        self.quiet = quiet
        self.instance = ActorInstance(actor, type(script).__qualname__, "", point)
        self.context = CallContext(self.instance, endpoint, shape, rank)
        self.thread = threading.get_ident()
        self._handle: Callable[[int, FrameType | None], object] | None = None
        # Only the main thread may set them, and the process joins on another one.
        signal.signal(MAIN_SIGNAL, self.on_signal)
        signal.signal(STACK_SIGNAL, signal.SIG_IGN)  # what faulthandler sets again when the interpreter ends

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Pass on the signal of the rank."""
        if self._handle is not None:
            self._handle(number, frame)

    def joined(self, mesh_id: str, rank: int, handle: Callable[[int, FrameType | None], object]) -> None:
        """The process has joined, as this rank; ``handle`` takes its signal. Any thread."""
        self.instance.mesh_id, self.instance.rank = mesh_id, self.context.shape.extent.point(rank)
        self.context.base_rank = rank
        self._handle = handle


class JoinedRank(RankProcess):
    """The services of this rank, in a process with a life of its own. Any thread, unless said otherwise.

    Args:
        birth, plumbing: From the host agent.
        main: The call that runs.
    """

    def __init__(self, birth: Birth, plumbing: Plumbing, main: MainCall) -> None:
        super().__init__(birth, plumbing, self._lost)
        self.lost = self._left = False
        self._control = os.fstat(plumbing.control.fileno())
        self._call = main
        self._handler = main.on_signal

    def _make_host(self) -> ActorHost:
        # No actor gets the main thread.
        return ActorHost(self.mesh_id, self.rank, self.report, None)

    def join(self) -> None:
        """Take part, and serve from now on. The main thread does not run meanwhile, or waits for this."""
        call = self._call
        self._take_part()
        call.joined(self.mesh_id, self.rank, self.on_main_signal)
        executor = Executor(
            self.mesh_id, self.rank, call.instance.name, SetUp(), _nobody_told, self.host.before_error, []
        )
        executor.state, executor.actor, executor.instance = "ready", call.script, call.instance
        mailbox = Mailbox(executor, lambda _executor, _error: None)
        mailbox.thread = call.thread
        mailbox.running = Execution(0, None, (), {}, call.context, no_reply=True)
        mailbox.calls = 1
        self.host.mailboxes[mailbox.name] = self.host.main_mailbox = mailbox
        self.control.start(self, self.runtime.driver, self._birth.operations)
        if hooks.proc_ready:
            hooks.run(hooks.proc_ready)
        self.report(ActorSpawned(self.mesh_id, mailbox.name, call.context.shape.to_wire()))
        self.report(ActorBegun(mailbox.name))
        if hooks.endpoint_enter:
            hooks.run(hooks.endpoint_enter, call.context.call)

    def _catch_crashes(self) -> None:
        if not faulthandler.is_enabled():  # by the process itself, to where it wants it
            super()._catch_crashes()

    def report(self, report: Report) -> None:
        """Send a report to the root's side of a plug-in, unless that is gone."""
        if self._is_there():
            super().report(report)

    def _is_there(self) -> bool:
        """Whether the program is there, as far as is known here.

        A script may close every descriptor. Their numbers are those of its own files then, to which nothing may be
        written.
        """
        if os.getpid() != self.pid:  # a fork that has come back from the script
            return False
        if not self.lost and self._is_closed():
            self._lost()
        return not self.lost

    def _is_closed(self) -> bool:
        """Whether the script has closed the connection to the program."""
        number = self._plumbing.control.fileno()
        if number < 0:
            return False
        try:
            return not os.path.samestat(os.fstat(number), self._control)
        except OSError:
            return True

    def raised(self, error: BaseException) -> None:
        """The call has ended by an exception, which leaves the process. The main thread, while it is handled."""
        if not self._is_there():
            return
        when = time.monotonic_ns()
        call = self._call.context.call
        hooks.run(self.host.before_error)
        if hooks.endpoint_error:
            hooks.run(hooks.endpoint_error, call, error)
        hooks.run(self.host.before_raised)
        remote = replace(describe_exception(error), failure=tell_stray(error, call, IN_SCRIPT))
        # Python prints it.
        self.report(Unhandled(call.actor, IN_SCRIPT, in_brief(remote), time.monotonic_ns(), said=True))
        self.control.send(Leaving(when, reported=True))
        self._left = True

    def ends(self) -> None:
        """The call has ended, and the process ends as every process of Python does. The main thread."""
        if not self._is_there():
            return
        if not self._left:
            self.control.send(Leaving(time.monotonic_ns(), reported=False))
        if hooks.endpoint_exit:
            hooks.run(hooks.endpoint_exit, self._call.context.call)
        self.control.settle(_SETTLE)

    def _lost(self) -> None:
        """The program is gone, or cannot be reached any more. On the control thread."""
        self.lost = True
        if not self.rank and not self._call.quiet:  # one line for all
            why = _CLOSED if self._is_closed() else "the program of this job has ended; its ranks continue without it"
            print(f"meshrt: {why}", file=sys.stderr, flush=True)
        sys.breakpointhook = sys.__breakpointhook__
        if hooks.program_lost:
            hooks.run(hooks.program_lost)

    def _on_stop(self, drain: bool, why: str) -> None:
        """The program ends; the process does not."""
        self._lost()

    def _give_back_signals(self) -> None:
        if signal.getsignal(MAIN_SIGNAL) == self._handler:
            signal.signal(MAIN_SIGNAL, signal.SIG_DFL)


def _nobody_told(_context: CallContext, _remote: RemoteException) -> None:
    """Its errors leave the process, which tells them itself."""
