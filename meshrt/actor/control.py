"""The control thread of a rank: the tree, new callers, and all that must work while user code is blocked.

It never runs user code, never unpickles and never waits for another thread. It serves

* the control link to the host agent: operations for this rank, answers to its requests, ``stop``,
* the listening socket: a caller proves the secret, names its actor, and its socket goes to that actor's mailbox,
* the driver in the background, when a thread has asked for that.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, assert_never

from meshrt.errors import MeshError, ProtocolError
from meshrt.hooks.facts import Body
from meshrt.hooks.plugins import PULSE_PLUGINS, plugin_of, plugins
from meshrt.hooks.table import hooks
from meshrt.transport.acceptor import SelectorReaders
from meshrt.transport.connecting import link_of, secured
from meshrt.transport.dataport import ACCEPTED
from meshrt.transport.dropping import WAIT_BYTES, Dropped, is_left_out
from meshrt.transport.entrance import Entrance
from meshrt.transport.link import Connection, Link
from meshrt.transport.threads import RuntimeThread
from meshrt.transport.timers import Timers
from meshrt.wire.certificate import Certificate
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import Frame, control_decoder
from meshrt.wire.handshake import ROLE_DATA, Identity, ServerHandshake
from meshrt.wire.peer import Reply, Requests
from meshrt.wire.tree import TO_RANK, Answer, Certified, DroppedEvents, End, Ping, Pong, Refusal, Request

if TYPE_CHECKING:
    from meshrt.hooks.services import RankServices

__all__ = ["ControlThread"]

#: Seconds between two checks whether the agent reads again.
_FULL_PAUSE = 0.02

_log = logging.getLogger("meshrt")


class _Driver(Protocol):
    """What is served in the background (`meshrt.transport.driver.Driver`)."""

    def fileno(self) -> int: ...
    def poll_nowait(self) -> None: ...


class ControlThread:
    """Serves until the process ends. `start` begins it; the other methods may be called from any thread.

    Args:
        listener: Where callers connect.
        control: The socket to the host agent, or None (an actor host in the root: callers only).
        secret: Callers prove that they have it.
        endpoint: ``"<mesh id>/<rank>/"``, the prefix of the names that callers may ask for.
        deliver: ``deliver(actor, link, leftover)`` for a proved caller.
        on_stop: ``on_stop(drain, why)``; ``why`` is "" unless an error is the reason.
        operations: name -> handler.
        door: Connections of other machines come from here, as descriptors; None: they are given to `admit`.
        certificate: Of the program, for those; None: it has one machine so far.
        agent_lost: Called when the agent has ended, or user code has closed the descriptors. On the thread.
    """

    def __init__(
        self,
        listener: socket.socket,
        control: socket.socket | None,
        secret: bytes,
        endpoint: str,
        deliver: Callable[[str, Link, bytes], None],
        on_stop: Callable[[bool, str], None],
        operations: dict[str, Callable[[Body], Body | None]],
        door: socket.socket | None = None,
        certificate: Certificate | None = None,
        agent_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self._agent_lost = agent_lost
        self._link = Link(control, control_decoder()) if control is not None else None
        self._endpoint = endpoint
        self._deliver = deliver
        self._on_stop = on_stop
        self._operations = operations
        #: name -> handler that calls its second argument later, once, from any thread.
        self.deferred: dict[str, Callable[[Body, Reply], None]] = {}
        self._services: RankServices | None = None
        #: Other parts that this thread serves register here; a key's data are called with the events.
        self.selector = selectors.DefaultSelector()
        self._entrance: Entrance[Connection] = Entrance(
            SelectorReaders(self.selector),
            listener,
            "a caller",
            secret,
            ROLE_DATA,
            self._let_in,
            self.call_later,
            identity=lambda: self.identity(),
            serves=lambda name: name.startswith(endpoint),
        )
        self._door = door
        self.certificate = certificate
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        #: Held while it is written to: once closed, its number may be that of another file. For signal handlers, too.
        self._waking = threading.RLock()
        #: Those to the root; what is called with their answers is called on this thread.
        self.requests = Requests(self.send)
        self._timers = Timers()
        #: Returns the identity of this process for processes that share memory with it.
        self.identity: Callable[[], Identity] = lambda: Identity(0, 0, os.getpid())
        self._driver: _Driver
        self._driver_wanted = False
        self._driver_on = False
        self._closing = False
        #: Events that were left out since the last report to the agent.
        self._dropped = Dropped()
        self._pulsing = False
        self.thread = RuntimeThread(target=self._run, name="meshrt-control", daemon=True)

    def start(
        self, services: RankServices | None, driver: _Driver, operations: Iterable[tuple[str, Body]] = ()
    ) -> None:
        """Begin to serve.

        Args:
            operations: What is served before anything else, in the calling thread: name and body. No answer is sent.
        """
        self._services = services
        self._driver = driver
        for name, body in operations:
            self._serve(Request(0, name, body))
        self._entrance.open()
        self.selector.register(self._wake_fd, selectors.EVENT_READ, self._woken)
        if self._link is not None:
            self.selector.register(self._link.sock, selectors.EVENT_READ, self._from_agent)
        if self._door is not None:
            self.selector.register(self._door, selectors.EVENT_READ, self._from_door)
        self.thread.start()

    # -- any thread

    def send(self, message: Message) -> None:
        """Send a message up the tree.

        It does not wait, or only for an agent that reads nothing for long, and not on threads of the runtime.
        """
        link = self._link
        if link is None:
            return
        if is_left_out(message, link.backlog_bytes):
            self._dropped.note(message.ev)
        elif not link.send([control_frame(message)]):
            self._wake()
            while link.backlog_bytes > WAIT_BYTES and not isinstance(threading.current_thread(), RuntimeThread):
                time.sleep(_FULL_PAUSE)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call ``function`` on this thread after ``seconds``. Signal handlers may call it too."""
        self._timers.add(seconds, function)
        self._wake()

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call ``function`` on this thread, in the order of these calls. Signal handlers may call it too."""
        self.call_later(0.0, function)

    def listen_again(self) -> None:
        """Make the socket for new callers again, if it was removed."""
        self.call_soon(self._entrance.listen_again)

    def admit(self, sock: socket.socket, certificate: Certificate, accepted: float) -> None:
        """Take a connection of another machine (an actor host in the root), which was accepted then (monotonic)."""
        self.certificate = certificate
        self.call_soon(lambda: self._admit(sock, accepted))

    def settle(self, timeout: float) -> None:
        """Wait until functions given to `call_soon` have run, and what had come to this thread is read.

        Callers whose proof had come are let in then.

        Args:
            timeout: Seconds, at most.
        """
        done = threading.Event()

        def look() -> None:
            self.let_in()
            done.set()

        # Its selector may have returned before this was called; the next time it finds all that has come.
        self.call_soon(lambda: self.call_soon(look))
        done.wait(timeout)

    def switch(self, on: bool) -> None:
        """Serve the driver in the background, or no longer."""
        self._driver_wanted = on
        self._wake()

    def end(self) -> None:
        """End the actors behind what callers have sent, as at an `End` (an actor host in the root)."""
        self.call_soon(lambda: self._end(True, ""))

    def close(self) -> None:
        """End the thread and close the listening socket (an actor host in the root; a rank just exits)."""
        self._closing = True
        self._wake()
        self.thread.join(2.0)
        if not self.thread.is_alive():
            # Not by the thread itself, which may notice its end before it is woken.
            with self._waking:
                wake_fd, self._wake_fd = self._wake_fd, -1
                os.close(wake_fd)

    def _wake(self) -> None:
        with self._waking:
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    # -- the thread

    def _run(self) -> None:
        while not self._closing:
            try:
                ready = self.selector.select(self._timers.wait())
            except OSError as error:
                if error.errno not in (errno.EBADF, errno.EINVAL):
                    raise
                # User code has closed all descriptors. Others may have their numbers by now: nothing is closed here.
                self._guard(self._agent_lost)
                return
            for key, events in ready:
                self._guard(key.data, events)
            for function in self._timers.due():
                self._guard(function)
        self._entrance.close()
        self.selector.close()

    @staticmethod
    def _guard(function: Callable[..., object], *args: object) -> None:
        try:
            function(*args)
        except ProtocolError as error:
            _log.warning("control thread: invalid message: %s", error)
        except Exception:
            # One bad request must not end the only thread that answers.
            _log.exception("control thread")

    def _woken(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        if self._driver_wanted != self._driver_on:
            self._driver_on = self._driver_wanted
            if self._driver_on:
                self.selector.register(self._driver.fileno(), selectors.EVENT_READ, self._drive)
            else:
                self.selector.unregister(self._driver.fileno())
        if self._link is not None and self._link.backlog:
            with contextlib.suppress(KeyError):
                self.selector.modify(self._link.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, self._from_agent)

    def _drive(self, _events: int) -> None:
        self._driver.poll_nowait()

    def _from_door(self, _events: int) -> None:
        if self._door is None:
            return
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        data, descriptors, _, _ = socket.recv_fds(self._door, ACCEPTED.size, 1, flags)
        for descriptor in descriptors:
            self._admit(socket.socket(fileno=descriptor), *ACCEPTED.unpack(data))
        if not data:  # the agent has ended
            self.selector.unregister(self._door)
        elif not descriptors:
            _log.warning("a connection of another machine was refused: no descriptor is free (see ulimit -n)")

    def _admit(self, sock: socket.socket, accepted: float) -> None:
        if self.certificate is None:
            sock.close()
        else:
            self._entrance.admit(secured(sock, self.certificate), accepted)

    def _let_in(self, sock: Connection, caller: ServerHandshake) -> None:
        link = link_of(sock)
        link.client = caller.client
        if link.client.machine == self.identity().machine:
            # As the kernel sees it from here: 0 in another pid namespace.
            link.client = link.client._replace(pid=link.peer)
        self._deliver(caller.endpoint[len(self._endpoint) :], link, caller.leftover)

    # -- the tree

    def _from_agent(self, events: int) -> None:
        link = self._link
        if link is None:
            return
        if events & selectors.EVENT_WRITE and link.flush():
            self.selector.modify(link.sock, selectors.EVENT_READ, self._from_agent)
            if self._dropped:
                self.send(DroppedEvents(self._dropped.take()))
        if events & selectors.EVENT_READ:
            frames = link.read()
            if frames is None:
                with contextlib.suppress(KeyError, ValueError):
                    self.selector.unregister(link.sock)
                self._agent_lost()
                return
            for frame in frames:
                try:
                    self._on_frame(frame)
                except Exception:
                    # One bad message must not lose those that were read together with it.
                    _log.exception("control thread")

    def _on_frame(self, frame: Frame) -> None:
        match TO_RANK.decode(frame.payload):
            case Request() as request:
                self._serve(request)
            case Answer() | Refusal() as answer:
                self.requests.received(answer)
            case Ping(number=number):
                self._entrance.listen_again()
                self.send(Pong(number))
                self._pulse()
            case End(drain=drain, why=why):
                self._end(drain, why)
            case Certified(certificate=certificate):
                self.certificate = Certificate(*certificate)
            case unknown:
                assert_never(unknown)

    def let_in(self) -> None:
        """Let in callers whose proof has come: what they have sent was sent before what this thread reads now."""
        self._entrance.read_now()

    def _end(self, drain: bool, why: str) -> None:
        if drain:
            self.let_in()
        self._on_stop(drain, why)

    def _pulse(self) -> None:
        if self._services is not None and not self._pulsing:
            self._pulsing = True
            for plugin in PULSE_PLUGINS:
                plugins.load(plugin, self._services, in_root=False)
        if hooks.pulse:
            hooks.run(hooks.pulse)

    def _serve(self, request: Request) -> None:
        name, reply = request.op, Reply(request.id, self.send)
        try:
            if name not in self._operations and name not in self.deferred and self._services is not None:
                reply.begins()
                plugins.load(plugin_of(name), self._services, in_root=False)
            if name in self.deferred:
                self.deferred[name](request.arguments, reply)
                reply.wait(self.call_later)
            elif name in self._operations:
                reply(self._operations[name](request.arguments), "")
            else:
                raise MeshError(f"a rank has no operation {name!r}")
        except Exception as error:
            # Any error is the answer; the peer that asked handles it.
            reply.fail(error)
            if not isinstance(error, MeshError):
                _log.exception("operation %s failed", name)
            elif not request.id:
                _log.warning("operation %s failed: %s", name, error)
