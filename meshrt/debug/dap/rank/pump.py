"""Rank side: one IDE on this rank, from its attach to its goodbye. Passes messages between the IDE and the engine.

::

    waiting --no thread is at a debugger's prompt--> attached --disconnect--> (ended)
                                                        | lost --"resume"--> (ended)
                                                        '------"stay"-----> orphaned --another IDE--> attached
                                                                               '--no thread is stopped--> (ended)

The bytes are passed on unchanged. The pump reads them on the way to learn two facts: whether threads are stopped, so
that deadlines are suspended, and whether a pause is requested that a blocked call does not notice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from types import FrameType

from meshrt.debug.dap.engine.engine import Engine, end_in_child, places, say_goodbye
from meshrt.debug.dap.engine.evaluations import evaluations
from meshrt.debug.dap.engine.expressions import expressions
from meshrt.debug.dap.operations import Closed, Holds, Leaving, Opened, Raised, Said
from meshrt.debug.dap.rank.channel import Channel
from meshrt.debug.dap.rank.passing import PATIENCE, Passing
from meshrt.debug.dap.rank.raisings import Raisings
from meshrt.debug.dap.wire import Message, MessageDecoder, encode
from meshrt.debug.stepping import user_frame
from meshrt.errors import MeshError
from meshrt.hooks.services import RankServices
from meshrt.transport.threads import RuntimeThread

__all__ = ["GONE", "Pump"]

#: Why it ends if the IDE has said no goodbye.
GONE = "the IDE has disconnected"

#: The most bytes that one read takes from the engine.
_CHUNK = 128 << 10
#: The longest message of the engine, in bytes. A message that is too long for an IDE is reported to it as such.
_ANY_LENGTH = 1 << 40

_log = logging.getLogger("meshrt")


class Pump:
    """Runs on its own thread, hidden from the engine. Methods may be called on any thread unless stated otherwise.

    Args:
        channel: The number by which the root knows this IDE.
        ended: Called on the pump's thread when the engine is gone.
    """

    def __init__(self, services: RankServices, channel: int, ended: Callable[[Pump], None]) -> None:
        self._services = services
        evaluations.typed = services.typed
        #: The IDE that has this rank, or had it last; and the one that the thread serves, which follows soon.
        self._channel = self._served = Channel(services, channel)
        self._ended = ended
        self.engine: Engine | None = None
        #: Bytes from the IDE. A channel in between: the bytes after it come from that IDE.
        self._inbox: deque[bytes | Channel] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        #: Held to write to that descriptor and to close it: a file of the user may soon get its number. Reentrant, as a
        #: prompt in a signal handler may end while the end of another prompt wakes the pump.
        self._waking = threading.RLock()
        self._may_start = False
        self._closing = ""
        self._from_engine = MessageDecoder(_ANY_LENGTH)
        self._passing = Passing(
            services, self._say, self._send, self._withdraw_pause, lambda: self._served.tell(Leaving)
        )
        self._raisings = Raisings(services, lambda rows: self._channel.tell(Raised, rows))
        self._held = False
        #: Set when the engine traces, or when it is certain that it never will.
        self._settled = threading.Event()
        #: Held by a thread while it stops in the engine: the engine does not end meanwhile.
        self._using = threading.Lock()
        #: Set when the debugger has the threads again.
        self._gone = threading.Event()
        self._thread = RuntimeThread(target=self._run, name="meshrt-dap", daemon=True)

    # -- any thread

    @property
    def channel(self) -> int:
        """The number by which the root knows the IDE that has this rank; 0 if that IDE is lost."""
        return 0 if self._channel.lost else self._channel.number

    @property
    def leaving(self) -> bool:
        """Whether the IDE has left and the engine is about to end."""
        return bool(self._closing) or self._passing.over

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def take(self) -> None:
        """See `meshrt.debug.rank.handover.Taker`."""
        self._may_start = True
        self._wake()

    def feed(self, data: bytes) -> None:
        """Queue bytes from the IDE for the engine."""
        self._inbox.append(data)
        self._wake()

    def taken(self, count: int) -> None:
        """The router has taken ``count`` bytes."""
        self._channel.taken(count)
        self._wake()

    def adopt(self, channel: int) -> bool:
        """Hand what a lost IDE has left stopped to another IDE. Returns False if the pump has ended.

        Args:
            channel: The number by which the root knows the new IDE.
        """
        with self._waking:
            if self._wake_fd < 0 or self._closing:
                return False
            self._channel = Channel(self._services, channel, self._channel)
            self._inbox.append(self._channel)
            self._wake()
            return True

    def orphan(self) -> None:
        """The IDE is lost: stopped threads stay stopped, but its running evaluations are interrupted.

        The pump ends as soon as no thread is stopped.
        """
        self._channel.lost = True
        self._wake()  # the engine may have waited for the IDE to take bytes

        def interrupt() -> None:
            if not self.leaving:  # otherwise it is done, and evaluations are another IDE's
                self._passing.interrupt(evaluations.posted)

        # The last request may still be on its way to the engine.
        self._services.call_later(PATIENCE, interrupt)

    def close(self, why: str) -> None:
        """Resume everything, as the IDE is lost or the rank ends. ``why`` is told to the root."""
        self._closing = why
        self._wake()

    def signalled(self, frame: FrameType | None) -> None:
        """Stop the main thread here if that was requested. On the main thread, in a signal handler."""
        evaluations.break_here(frame)
        engine = self.engine
        where, safe = user_frame(frame)
        if engine is not None and where is not None and safe:
            engine.suspend(where)

    def breakpoint(self, frame: FrameType) -> bool:
        """See `meshrt.debug.rank.handover.Taker`. Waits for the engine; if the IDE leaves, for the end of the pump."""
        self._settled.wait()
        with self._using:
            if self.engine is not None and not self.leaving:
                self.engine.breakpoint(frame)
                return True
        self._gone.wait()
        return False

    def forked(self) -> None:
        """See `meshrt.debug.rank.handover.Taker`."""
        end_in_child()

    def _wake(self) -> None:
        with self._waking:
            if self._wake_fd >= 0:  # otherwise it has ended
                os.eventfd_write(self._wake_fd, 1)

    def _say(self, text: str) -> None:
        self._channel.tell(Said, text)

    def _send(self, message: Message) -> None:
        self._served.send(message)

    # -- the thread

    def _run(self) -> None:
        why = ""
        try:
            self._serve()
        except Exception as error:
            # Report it to the IDE; the rank has to go on in any case.
            why = str(error) if isinstance(error, MeshError) else f"{type(error).__name__}: {error}"
            if not isinstance(error, MeshError):
                _log.exception("an IDE on this rank")
        finally:
            self._hold(False)
            self._settled.set()
            with self._waking:  # from here on no IDE takes it over
                wake_fd, self._wake_fd = self._wake_fd, -1
                os.close(wake_fd)
            self._ended(self)
            self._gone.set()
            self._channel.report(Closed, why or self._closing)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_fd, selectors.EVENT_READ)
            while not self._may_start and not self._closing:
                selector.select()
                self._woken()
            if self._closing:
                return
            engine = Engine()
            sock = engine.start()
            self.engine = engine
            expressions.heard = self._raisings.hear
            self._settled.set()
            try:
                self._served.tell(Opened, engine.price)
                self._carry(selector, sock)
                if not self._passing.over:
                    say_goodbye(sock, self._from_engine)
                # The engine has received all requests before the goodbye.
                self._passing.interrupt(evaluations.posted)
            finally:
                with self._using:
                    self.engine = None
                # This also resumes the threads that are stopped in the engine.
                engine.stop()

    def _carry(self, selector: selectors.BaseSelector, sock: socket.socket) -> None:
        reading = False
        self._pass_on(sock)  # what arrived while the debugger still had the threads
        while not self._closing and not self._passing.over:
            wanted = self._served.has_room
            if wanted and not reading:
                selector.register(sock, selectors.EVENT_READ)
            elif reading and not wanted:
                selector.unregister(sock)
            reading = wanted
            alone = self._served.lost and not self._passing.stopped
            ready = selector.select(0 if alone else self._passing.pause.until_kick())
            if alone and not ready:  # all that the engine said is read: no thread is stopped
                self._leave_alone()
            for key, _ in ready:
                if key.fileobj is sock:
                    self._from_the_engine(sock)
                else:
                    self._woken()
            self._pass_on(sock)
            self._passing.pause.kick_if_due(self._passing.stopped)

    def _leave_alone(self) -> None:
        """Close: the IDE is lost and no thread is stopped. Not if another IDE has just attached."""
        with self._waking:
            if self._channel.lost:
                self._closing = GONE

    def _pass_on(self, sock: socket.socket) -> None:
        """Send the engine what the IDE has sent."""
        while self._inbox:
            said = self._inbox.popleft()
            if isinstance(said, Channel):
                self._serve_another(said)
                continue
            for message in self._served.receive(said):
                if message["type"] != "request" or not self._passing.request(message):
                    # Whole messages only: the IDE may be lost in the middle of one.
                    sock.sendall(encode(message))

    def _serve_another(self, channel: Channel) -> None:
        """Serve another IDE from here on."""
        self._served = channel
        self._passing.another_ide()
        engine = self.engine
        if engine is not None:
            engine.forget_breakpoints()  # the new IDE does not know them
            channel.tell(Opened, engine.price)
        self._tell_held()  # it may have changed since the last IDE was lost

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def _from_the_engine(self, sock: socket.socket) -> None:
        data = sock.recv(_CHUNK)
        if not data:
            raise MeshError("the engine has ended")
        for message in self._from_engine.receive_data(data):
            behind = self._passing.said(message)
            self._hold(self._passing.stopped)
            for each in (message, *behind):
                self._send(each)

    def _withdraw_pause(self) -> None:
        if self.engine is not None:
            self.engine.withdraw_pause()

    def _hold(self, held: bool) -> None:
        if held != self._held:
            self._held = held
            self._services.set_held(held)
            self._tell_held()

    def _tell_held(self) -> None:
        found = places(self._services.actors()) if self._held else {}
        self._served.report(Holds, self._held, found)
