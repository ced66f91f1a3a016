"""The actors of one process, and the threads that serve them.

An actor: ``begun -> stopped -> begun ...``. While it is stopped it has no thread, no mailbox and no descriptor of its
own; the control thread answers its callers (`meshrt.actor.stopped`).
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

from meshrt.actor.callers import Message
from meshrt.actor.cancelling import Cancelling
from meshrt.actor.context import CallContext
from meshrt.actor.control import ControlThread
from meshrt.actor.execute import Execution, Executor
from meshrt.actor.inboxes import PortLinks
from meshrt.actor.mailbox import Mailbox
from meshrt.actor.setup import SetUp
from meshrt.actor.stopped import StoppedActors
from meshrt.errors import MeshError, ProtocolError, RemoteException
from meshrt.hooks.operations import Answers, Nothing, Report
from meshrt.transport.link import Link
from meshrt.wire.errors import in_brief
from meshrt.wire.messages import ABORTED, CANCELS, PORTS, URGENT
from meshrt.wire.operations import ActorBegun, ActorEnded, EndActor, Unhandled

__all__ = ["ActorHost"]

_log = logging.getLogger("meshrt")

#: Seconds until the next try to begin an actor that could not be begun: no descriptor, no thread, no memory was left.
_BEGIN_AGAIN = 0.1


class ActorHost:
    """The actors of one process. Methods belong to the control thread, unless marked otherwise.

    Args:
        mesh_id, rank: The rank of these actors.
        report: Sends a report to the root.
        main: The queue from which the main thread takes actors to `serve`, and None at the end; None: it takes none.
        exiting: Called, on the actor's thread, when a task of an actor wants the process to end (`Mailbox`); None: the
            process does not end, and the error is reported.
        interrupt: See `Cancelling`.
    """

    def __init__(
        self,
        mesh_id: str,
        rank: int,
        report: Callable[[Report], None],
        main: queue.SimpleQueue[Mailbox | None] | None,
        exiting: Callable[[Executor, BaseException], None] | None = None,
        interrupt: Callable[[Mailbox, Execution], bool] = lambda _mailbox, _execution: False,
    ) -> None:
        self.mesh_id = mesh_id
        self.rank = rank
        self.mailboxes: dict[str, Mailbox] = {}
        #: Makes the mailbox of an actor that begins, as the class does.
        self.make_mailbox: Callable[[Executor, Callable[[Executor, BaseException], None]], Mailbox] = Mailbox
        #: The one that the main thread serves.
        self.main_mailbox: Mailbox | None = None
        #: Called on an actor's thread when an endpoint has raised, before the hooks for that are looked up.
        self.before_error: list[Callable[[], object]] = []
        #: Called once an endpoint has raised and its caller was answered, before the hooks for that are looked up.
        self.before_raised: list[Callable[[], object]] = []
        self._report = report
        self._main = main
        self._interrupt = interrupt
        self._exiting = exiting or _report_exit
        self._threads: dict[str, threading.Thread] = {}
        #: Callers of actors that could not be begun yet.
        self._waiting: dict[str, tuple[list[Link], list[Message]]] = {}
        #: Ends what an actor has made, and calls back; None: it is the script's.
        self.end_made: Callable[[str, Callable[[], None]], None] | None = None
        #: Who is told of the end of an actor.
        self._to_end: dict[str, list[Callable[[], object]]] = {}
        self._ending: bool | None = None
        self._error: BaseException | None = None
        self._setup = SetUp()

    def attach(self, control: ControlThread) -> None:
        """Be served by ``control``, before it starts."""
        self._call_soon = control.call_soon
        self._call_later = control.call_later
        self._stopped = StoppedActors(control.selector, self._begin)
        self._ports = PortLinks(control.selector, control.call_soon)
        self._cancelling = Cancelling(control.selector, self.mailboxes, self._interrupt, self._stopped.has_answered)

    def deliver(self, actor: str, link: Link, leftover: bytes) -> None:
        """Take a proved caller of an actor; ``leftover`` came behind its proof. The first one begins the actor."""
        link.urgent = actor.endswith(URGENT)
        actor = actor.removesuffix(URGENT)
        try:
            messages = [(link, frame) for frame in link.feed(leftover)]
        except ProtocolError:
            link.close()
            return
        mailbox = self.mailboxes.get(actor)
        if actor == CANCELS:
            self._cancelling.add(link, [frame for _, frame in messages])
        elif actor == PORTS:
            self._ports.add(link, [frame for _, frame in messages])
        elif mailbox is not None:
            mailbox.callers.add([link], messages)
        elif actor in self._stopped:
            self._stopped.add(actor, [link], messages)
        else:
            self._begin(actor, [link], messages)

    def _begin(self, actor: str, links: list[Link], messages: list[Message]) -> None:
        """Begin an actor now, or, where a resource is short, as soon as possible."""
        if actor in self._waiting:
            known, unserved = self._waiting[actor]
            known += links
            unserved += messages
            return
        try:
            self._begin_now(actor, links, messages)
        except (OSError, RuntimeError, MemoryError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error) or "no memory"
            _log.error("actor %s cannot be started now; this will be retried: %s", actor, why)
            self._waiting[actor] = links, messages
            self._call_later(_BEGIN_AGAIN, functools.partial(self._begin_again, actor))

    def _begin_again(self, actor: str) -> None:
        try:
            self._begin_now(actor, *self._waiting[actor])
            del self._waiting[actor]
        except (OSError, RuntimeError, MemoryError):
            self._call_later(_BEGIN_AGAIN, functools.partial(self._begin_again, actor))

    def _begin_now(self, actor: str, links: list[Link], messages: list[Message]) -> None:
        executor = Executor(
            self.mesh_id, self.rank, actor, self._setup, self._unhandled, self.before_error, self.before_raised
        )
        mailbox = self.make_mailbox(executor, self._exiting)
        mailbox.error = self._error
        mailbox.callers.add(links, messages)
        self.mailboxes[actor] = mailbox
        self._report(ActorBegun(actor))
        if self._ending is not None:
            mailbox.stop(drain=self._ending)
        elif self._main is not None and self.main_mailbox is None:
            self.main_mailbox = mailbox
            self._main.put(mailbox)
            return
        thread = threading.Thread(target=self.serve, args=(mailbox,), name=f"meshrt-{actor}", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            del self.mailboxes[actor]
            mailbox.callers.close_poll()
            self._report(ActorEnded(actor))
            raise
        self._threads[actor] = thread

    def were_stopped(self, actors: Iterable[str]) -> None:
        """These were on the rank before it was started again: their callers are told that they were stopped."""
        for actor in actors:
            self._stopped.add(actor, [], [])

    def serve(self, mailbox: Mailbox) -> None:
        """Serve an actor until it ends. The actor's thread."""
        mailbox.serve()
        if mailbox.stopped:
            self._call_soon(functools.partial(self._end_made, mailbox))

    def _end_made(self, mailbox: Mailbox) -> None:
        """What the actor has made ends with it, before its own end is told."""
        instance = mailbox.executor.instance
        if instance is not None and instance.has_made and self.end_made is not None:
            self.end_made(mailbox.name, functools.partial(self._retire, mailbox))
        else:
            self._retire(mailbox)

    def end(self, asked: EndActor, answer: Answers[Nothing]) -> None:
        """The owner of an actor has ended: end it behind what was sent before."""
        mailbox = self.mailboxes.get(asked.actor)
        if mailbox is None:
            answer(Nothing(), "")
            return
        self._to_end.setdefault(asked.actor, []).append(lambda: answer(Nothing(), ""))
        mailbox.retire(MeshError(asked.why) if asked.why else None, drain=True)

    def _retire(self, mailbox: Mailbox) -> None:
        """Free the resources of a stopped actor."""
        self._report(ActorEnded(mailbox.name))
        del self.mailboxes[mailbox.name]
        self._threads.pop(mailbox.name, None)
        if self.main_mailbox is mailbox:
            # Before the STOP is answered: the actor that is spawned next finds the main thread free.
            self.main_mailbox = None
        self._stopped.add(mailbox.name, *mailbox.callers.hand_over(), mailbox.executor.ended_by)
        for ended in self._to_end.pop(mailbox.name, ()):
            ended()

    # -- the end

    def failed(self, error: BaseException) -> None:
        """Remember what ends this process: ``__cleanup__`` is told. Any thread."""
        self._error = self._error or error
        for mailbox in tuple(self.mailboxes.values()):
            mailbox.error = self._error

    def stop(self, drain: bool) -> None:
        """Tell every actor to end: after what was sent before (``drain``), or after the running message. Any thread."""
        drain = drain and self._ending is not False
        self._ending = drain
        for mailbox in tuple(self.mailboxes.values()):
            mailbox.stop(drain=drain)
        if self._main is not None:
            self._main.put(None)

    def interrupt(self, *, cleanup: bool) -> None:
        """Do not wait any longer after `stop`: serve only the running message, and cancel what waits in an event loop.

        Args:
            cleanup: Cancel also a ``__cleanup__`` that has begun. Otherwise it has its time, as after every other end.
        """
        self.stop(False)
        for mailbox in tuple(self.mailboxes.values()):
            mailbox.cancel(cleanup=cleanup)

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the actors' threads after `stop`; returns whether they have ended. Not the control thread."""
        deadline = None if timeout is None else time.monotonic() + timeout
        threads = tuple(self._threads.values())
        for thread in threads:
            thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def close(self, timeout: float) -> None:
        """Close what the actors have, if their threads end within ``timeout`` seconds. No call may come any more."""
        if self.join(timeout):
            for mailbox in self.mailboxes.values():
                mailbox.callers.close()
            self.mailboxes.clear()
            self._stopped.close()
            self._cancelling.close()
            self._ports.close()

    def abandon(self) -> None:
        """Close the links in a forked child, which serves no caller."""
        for links, _ in tuple(self._waiting.values()):
            for link in links:
                link.sock.close()
        for mailbox in self.mailboxes.values():
            mailbox.executor.abandon()
            mailbox.callers.abandon()
        self._stopped.abandon()
        self._cancelling.abandon()
        self._ports.abandon()

    def _unhandled(self, context: CallContext, remote: RemoteException) -> None:
        # The answer to a caller says it.
        said = context.endpoint == "__init__" or (remote.type == ABORTED and context.link is not None)
        report = Unhandled(context.instance.name, context.endpoint, in_brief(remote), time.monotonic_ns(), said=said)
        self._report(report)


def _report_exit(executor: Executor, error: BaseException) -> None:
    executor.report("a task", error)
