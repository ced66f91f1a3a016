"""A process's connection to the store of one host.

Any thread may send. Finalizers do: they may run at any place, also inside of this code. So their messages are queued,
and sent by the thread that has the connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from meshrt.errors import MeshError, ProtocolError, ReferenceLost, StoreTimeout
from meshrt.store.chunks import Chunks
from meshrt.store.dialling import dial, wait_for
from meshrt.store.exclusive import Exclusive
from meshrt.store.messages import (
    TO_PROCESS,
    Deliver,
    Dropped,
    Fetch,
    Fetched,
    Freed,
    FromProcess,
    Full,
    Give,
    Grant,
    Import,
    Publish,
    Silent,
    Take,
    TakeBack,
    ToProcess,
    WithDescriptors,
)
from meshrt.store.outbox import Outbox, Unanswered
from meshrt.store.protocol import DescriptorStream, Incoming, close_descriptors, store_path
from meshrt.store.questions import Questions
from meshrt.store.silence import Silence
from meshrt.transport.interrupts import Shield, installed
from meshrt.transport.kernel import is_stopped
from meshrt.wire.errors import refused
from meshrt.wire.handshake import Identity
from meshrt.wire.tree import Later, Refusal

__all__ = ["Registrar"]

Asked = Publish | Grant | Take | Fetch | Import | Deliver
A = TypeVar("A", bound=ToProcess)

#: Seconds that an agent may take for an answer.
_PATIENCE = 10.0
#: ... for its connection, if it has not answered the last one who wanted that.
_AGAIN = 1.0
#: Seconds that Ctrl-C may wait for one.
_PAUSE = 0.1
#: ... and where no thread may wait.
_SHORT = 0.1


class Registrar:
    """Raises OSError, ProtocolError or ReferenceLost if the store cannot be reached, StoreTimeout if it is silent.

    After one thread has timed out, further ones fail at once, until the store sends something, or has read all messages
    and owes no answer; or for a second, where there is no connection yet.

    Args:
        directory: The runtime directory of the program.
        secret: Both sides prove that they have it.
        agent_pid: The host agent of the store.
        machine: The number of the machine that both are on.
        host_of: Returns the host of an agent; "" if that is not known here.
    """

    def __init__(
        self,
        directory: str,
        secret: bytes,
        agent_pid: int,
        machine: int = 0,
        host_of: Callable[[int], str] = lambda _agent_pid: "",
    ) -> None:
        self.machine = machine
        self.agent_pid = agent_pid
        self.lost = False
        self._path = store_path(directory, agent_pid)
        self._secret = secret
        self._host_of = host_of
        self._silence = Silence()
        #: Segments of this process whose memory may be written again, as far as is known.
        self.freed: deque[int] = deque()
        self._stream: DescriptorStream | None = None
        self._lock = Exclusive()
        self._questions = Questions()
        self._outbox = Outbox()
        #: Of other processes, as they are mapped here.
        self.chunks = Chunks(self._fetch)

    # -- speaking

    def tell(self, message: FromProcess, *, undo: TakeBack | None = None) -> None:
        """Say something that is not answered.

        Args:
            undo: Sent later if this was interrupted, or has timed out: the message may go out all the same.
        """
        with self._lock:
            stream = self._connected()
            if self._is_silent(stream) and stream.unsent:
                raise self._says_nothing(self._silence.since)  # this would only lie there
            stream.queue(message)
            try:
                self._send(stream)
            except BaseException:
                if undo is not None:
                    self._outbox.add(undo)
                raise
        self.settle()

    def give(self, segments: Sequence[int], pids: Sequence[int]) -> None:
        """These processes hold segments once more: the caller notes that in the same shielded section."""
        self.tell(Give(segments, pids), undo=TakeBack(segments, pids))

    def tell_later(self, message: Unanswered) -> None:
        """Say something that is not answered, without a wait."""
        self._outbox.add(message)
        self.settle()

    def let_go(self, segment: int) -> None:
        """This process holds a segment once less. Any thread, at any time: a finalizer may call it."""
        self._outbox.let_go(segment)
        self.settle()

    def ask(self, question: Callable[[int], Asked], expected: type[A], send: Sequence[int] = ()) -> A:
        """Ask, and wait for the answer. Raises the error of the store's refusal (MeshError).

        Args:
            question: Returns the question with a number.
            expected: The class of the answer.
            send: Descriptors that go with it, if it is one that has some.
        """
        answer, descriptors = self._asked(question, expected, send)
        close_descriptors(descriptors)  # this question has no reason to bring any
        return answer

    def _fetch(self, chunk: int) -> Incoming[Fetched]:
        return self._asked(lambda number: Fetch(number, chunk), Fetched)

    def _asked(self, question: Callable[[int], Asked], expected: type[A], send: Sequence[int] = ()) -> Incoming[A]:
        shield, answer = installed(), None
        try:
            with shield:  # what is asked is answered or given up, whenever Ctrl-C comes
                answer = self._exchange(question, send, shield)
        except BaseException:
            if answer is not None:
                self._undo(answer)
            raise
        if isinstance(answer.message, expected):
            return Incoming(answer.message, answer.descriptors)
        self._undo(answer)
        raise self._error_of(answer.message)

    def _error_of(self, answer: ToProcess) -> MeshError:
        match answer:
            case Silent():
                return self._timeout(answer.agent_pid, answer.seconds)
            case Full():
                return answer.error()
            case Refusal():
                return refused(answer)
            case _:
                return ProtocolError(f"unexpected answer of the store: {type(answer).__name__}")

    def _exchange(self, ask: Callable[[int], Asked], send: Sequence[int], shield: Shield) -> Incoming[ToProcess]:
        """Other threads may speak while this one waits: some answers take as long as the stores of other hosts do."""
        with self._lock:
            stream = self._connected()
            if self._is_silent(stream):
                raise self._says_nothing(self._silence.since)
            question = self._questions.ask(stream.sock)
            try:
                message = ask(question.number)
                if send and isinstance(message, WithDescriptors):
                    stream.queue_with(message, send)
                else:
                    stream.queue(message)
            except BaseException:
                self._questions.cancel(question)
                raise
            try:
                self._send(stream)
            except BaseException:
                self._questions.close(question)
                raise
        try:
            while (answer := question.take()) is None:
                if self._outbox:
                    self.settle()  # the thread that had to say this has found the lock taken
                silent = not question.wait(min(_PAUSE, question.heard + _PATIENCE - time.monotonic()))
                shield.check()
                with self._lock:
                    self._receive(stream)
                    if silent and question.heard + _PATIENCE <= time.monotonic():
                        raise self._says_nothing(question.heard)
        finally:
            late = self._questions.close(question)
            if late is not None:
                self._undo(late)
            self.settle()
        return answer

    def _undo(self, answer: Incoming[ToProcess]) -> None:
        """An answer has come too late. Waits for nothing."""
        self._outbox.undo(answer)
        self.settle()

    def settle(self) -> None:
        """Send the outbox, and read the messages of the store; never waits."""
        while not self.lost and self._stream is not None and self._lock.acquire(blocking=False):
            try:
                self._outbox.move_to(self._stream)
                self._stream.flush()
                self._receive(self._stream)
            except (OSError, MeshError):
                self._lose()
            finally:
                self._lock.release()
            if not self._outbox:
                return

    @property
    def has_work(self) -> bool:
        """Whether there are messages to read or to send."""
        unsent = self._stream is not None and self._stream.unsent
        return bool(self._outbox or self.chunks or unsent) and not self.lost

    def connect(self) -> None:
        """Connect, if that has not been done."""
        with self._lock:
            self._connected()
        self.settle()

    def tend(self) -> None:
        """Send and read, on a thread that must not be blocked: what would block is left for later."""
        if self._stream is None and self._outbox and not self.lost and self._lock.acquire(blocking=False):
            try:
                self._connect(_SHORT)
            except (OSError, MeshError):
                # No descriptor is left, or it is busy, or does not let this process in: it is dialled another time, and
                # a thread that asks is told.
                pass
            finally:
                self._lock.release()
        self.settle()

    # -- inside

    def _connected(self) -> DescriptorStream:
        if self.lost:
            raise self._ended()
        stream = self._stream
        if stream is None:
            begun = time.monotonic()
            try:
                stream = self._connect(_AGAIN if self._silence.since else _PATIENCE)
            except TimeoutError:
                raise self._says_nothing(self._silence.since or begun) from None
        self._outbox.move_to(stream)
        return stream

    def _ended(self) -> ReferenceLost:
        return ReferenceLost("the host agent that keeps the shared memory has ended")

    def _is_silent(self, stream: DescriptorStream) -> bool:
        """Whether it has been waited for in vain, and says nothing still. Waits for nothing."""
        if self._silence.since:
            self._receive(stream)
        if self._silence.since and self._flush(stream) and not self._questions.owed:
            self._silence.forget()  # it has read all messages, and owes no answer
        return bool(self._silence.since)

    def _says_nothing(self, since: float) -> StoreTimeout:
        """It was waited for since then (monotonic). The caller has the lock."""
        self._silence.in_vain(since)
        return self._timeout(self.agent_pid, time.monotonic() - since)

    def _timeout(self, agent_pid: int, seconds: float) -> StoreTimeout:
        since, stopped = time.time_ns() - round(seconds * 1e9), False
        with contextlib.suppress(OSError):  # no descriptor is free to look that up
            stopped = is_stopped(agent_pid)
        return StoreTimeout(self._host_of(agent_pid), agent_pid, seconds, since=since, stopped=stopped)

    def _connect(self, patience: float) -> DescriptorStream:
        own = Identity(self.machine, self.agent_pid, os.getpid())
        try:
            self._stream, messages = dial(self._path, self._secret, own, patience, self._lock.pause)
        except (FileNotFoundError, ConnectionError):  # it is not there, or has ended at this moment
            self._lose()
            raise self._ended() from None
        self._silence.heard()
        self._take(messages)
        return self._stream

    def _send(self, stream: DescriptorStream) -> None:
        begun = self._silence.since or time.monotonic()
        while not self._flush(stream):
            try:
                wait_for(stream.sock, select.POLLOUT, begun + _PATIENCE, self._lock.pause)
            except TimeoutError:
                raise self._says_nothing(begun) from None  # it is not lost: the queue goes out when it reads again

    def _flush(self, stream: DescriptorStream) -> bool:
        try:
            return stream.flush()
        except ConnectionError:
            self._lose()
            raise self._ended() from None
        except OSError:
            self._lose()
            raise

    def _receive(self, stream: DescriptorStream) -> None:
        """Read what there is."""
        if self.lost:
            raise self._ended()
        try:
            messages = stream.read(TO_PROCESS)
        except ConnectionError:  # it has ended, and had not read what was sent to it
            messages = None
        except ProtocolError:
            self._lose()  # data that has come with it is lost, perhaps answers
            raise
        if messages is None:
            self._lose()
            raise self._ended()
        if messages:
            self._silence.heard()
        self._take(messages)

    def _take(self, messages: list[Incoming[ToProcess]]) -> None:
        for incoming in messages:
            match incoming.message:
                case Freed(segments=segments):
                    self.freed += segments
                case Dropped(chunk=chunk):
                    self.chunks.dropped(chunk)
                case Later(id=number):
                    self._questions.heard(number)
                case answer:
                    if not self._questions.answer(answer.id, incoming):
                        self._undo(incoming)  # its thread was interrupted

    def _lose(self) -> None:
        """The caller has the lock."""
        self.lost = True
        self._silence.forget()  # it is not mute, it has ended
        if self._stream is not None:
            self._stream.close()

    def close(self) -> None:
        """The end of this process's part in the program, or a forked child, which holds nothing."""
        self.lost = True
        self.chunks.clear()
        if self._stream is None:
            return
        if not self._lock.acquire(blocking=False):
            self._stream.sock.close()  # the thread that is at it finds that out, and closes the rest
            return
        try:
            self._stream.close()
            self._stream = None
        finally:
            self._lock.release()
