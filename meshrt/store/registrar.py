"""A process's connection to the store of one host.

Any thread may speak. Finalizers do: they run wherever the collector happens to be, also inside of what stands here. So
what they say is queued, and sent by whoever has the connection.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from meshrt.errors import MeshError, ProtocolError, ReferenceLost, StoreFull
from meshrt.store.exclusive import Exclusive
from meshrt.store.mapping import Copies, Mapping
from meshrt.store.protocol import DescriptorStream, store_path
from meshrt.transport.link import same_user
from meshrt.wire.handshake import ROLE_STORE, ClientHandshake
from meshrt.wire.messages import refused

__all__ = ["Registrar"]

#: Seconds that an agent may take for an answer.
_PATIENCE = 10.0
#: ... and where nobody may wait.
_SHORT = 0.1


class Registrar:
    """Raises OSError, ProtocolError or ReferenceLost where the store cannot be reached.

    Args:
        directory: The runtime directory of the program.
        secret: What both sides prove.
        agent_pid: Whose store it is.
    """

    def __init__(self, directory: str, secret: bytes, agent_pid: int) -> None:
        self.agent_pid = agent_pid
        self.lost = False
        self._path = store_path(directory, agent_pid)
        self._secret = secret
        #: Segments of this process whose memory may be written again, as far as was heard.
        self.freed: deque[int] = deque()
        self._stream: DescriptorStream | None = None
        self._lock = Exclusive()
        self._numbers = itertools.count(1)
        #: What finalizers have to say: an operation, and a segment.
        self._left: deque[tuple[str, int]] = deque()
        self._answers: deque[dict[str, Any]] = deque()
        self._maps: dict[int, Mapping | Copies] = {}

    # -- speaking

    def tell(self, message: dict[str, Any]) -> None:
        """Say something that is not answered."""
        with self._lock:
            stream = self._connected()
            stream.queue(message)
            self._send(stream)
        self.settle()

    def ask(self, operation: str, send: Sequence[int] = (), **body: Any) -> tuple[dict[str, Any], list[int]]:
        """Ask, and wait for the answer and its descriptors. Raises what the store refuses it with (MeshError).

        Args:
            send: Descriptors that go with the question.
        """
        with self._lock:
            stream = self._connected()
            number = next(self._numbers)
            stream.queue({"t": operation, "n": number, **body}, list(send))
            deadline = time.monotonic() + _PATIENCE
            self._send(stream)
            while (answer := self._answer_to(number)) is None:
                self._receive(stream, max(0.001, deadline - time.monotonic()))
        self.settle()
        if answer["t"] == "no":
            raise StoreFull(*answer["facts"]) if "facts" in answer else refused(answer)
        return answer, answer["descriptors"]

    def _answer_to(self, number: int) -> dict[str, Any] | None:
        """Return the answer to a question; what was asked before, by somebody who was interrupted, is undone."""
        while self._answers:
            answer = self._answers.popleft()
            if answer["n"] == number:
                return answer
            for descriptor in answer["descriptors"]:
                os.close(descriptor)
            if self._stream is not None and answer.get("granted"):
                self._stream.queue({"t": "grant", "n": 0, "size": -answer["granted"]})
            if "taken" in answer:
                self._left.append(("let_go", answer["taken"]))
        return None

    def let_go(self, segment: int) -> None:
        """This process holds a segment once less. Any thread, at any time: a finalizer may call it."""
        self._left.append(("let_go", segment))
        self.settle()

    def withdraw(self, segment: int) -> None:
        """What this process has lent was not sent. Waits for nothing."""
        self._left.append(("withdraw", segment))
        self.settle()

    def settle(self) -> None:
        """Send what finalizers have left, and hear what the store has to say; waits for nothing."""
        while not self.lost and self._stream is not None and self._lock.acquire(blocking=False):
            try:
                self._send_left(self._stream)
                self._receive(self._stream, 0.0)
            except (OSError, MeshError):
                self._lose()
            finally:
                self._lock.release()
            if not self._left:
                return

    @property
    def has_work(self) -> bool:
        """Whether it has to be listened to, or told something."""
        return bool(self._left or self._maps) and not self.lost

    def connect(self) -> None:
        """Connect, if that has not been done."""
        with self._lock:
            self._connected()
        self.settle()

    def tend(self) -> None:
        """Send and hear what there is, on a thread that must not be blocked: what takes longer is left for later."""
        if self._stream is None and self._left and not self.lost and self._lock.acquire(blocking=False):
            try:
                self._stream = self._dial(_SHORT)
            except OSError:
                pass  # no descriptor is left, or the agent is busy: another time
            finally:
                self._lock.release()
        self.settle()

    # -- chunks

    def mapping(self, chunk: int) -> Mapping | Copies:
        """Return a chunk of somebody else as it is mapped here.

        Raises:
            ReferenceLost: It is not there any more.
        """
        found = self._maps.get(chunk)
        if found is not None:
            return found
        try:
            answer, descriptors = self.ask("fetch", chunk=chunk)
        except MeshError as error:
            raise ReferenceLost(f"shared memory cannot be had from its host: {error}") from error
        if not descriptors:
            raise OSError("no file descriptor is left for shared memory (see ulimit -n)")
        try:
            mapping: Mapping | Copies = Mapping(descriptors[0], answer["size"])
            os.close(descriptors[0])
        except OSError:
            mapping = Copies(descriptors[0])  # no addresses are left (ulimit -v)
        return self._maps.setdefault(chunk, mapping)

    # -- inside

    def _connected(self) -> DescriptorStream:
        if self.lost:
            raise ReferenceLost("the host agent that keeps the shared memory has ended")
        if self._stream is None:
            self._stream = self._dial()
        self._send_left(self._stream)
        return self._stream

    def _dial(self, patience: float = _PATIENCE) -> DescriptorStream:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(patience)
            sock.connect(self._path)
            if not same_user(sock):
                raise ProtocolError(f"{self._path} is served by another user")
            handshake = ClientHandshake(self._secret, ROLE_STORE, "store")
            sock.sendall(handshake.hello())
            while not handshake.done:
                data = sock.recv(256)
                if not data:
                    raise ReferenceLost("the store of this host has refused this process")
                sock.sendall(handshake.receive_data(data))
            stream = DescriptorStream(sock)
            self._take(stream.feed(handshake.leftover))
            sock.setblocking(False)
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            self.lost = True
            raise ReferenceLost("the host agent that keeps the shared memory has ended") from None
        except BaseException:
            sock.close()
            raise
        return stream

    def _send_left(self, stream: DescriptorStream) -> None:
        found: dict[str, list[int]] = {}
        while self._left:
            operation, segment = self._left.popleft()
            found.setdefault(operation, []).append(segment)
        for operation, segments in found.items():
            stream.queue({"t": operation, "segments": segments})
        if found:
            self._send(stream)

    def _send(self, stream: DescriptorStream) -> None:
        deadline = time.monotonic() + _PATIENCE
        try:
            while not stream.flush():
                self._wait(stream, select.POLLOUT, deadline - time.monotonic())
        except OSError:
            self._lose()
            raise

    def _receive(self, stream: DescriptorStream, seconds: float) -> None:
        """Read what there is; wait for it, if ``seconds`` says so."""
        messages = stream.read()
        if not messages and messages is not None and seconds:
            self._wait(stream, select.POLLIN, seconds)
            messages = stream.read()
        if messages is None:
            self._lose()
            raise ReferenceLost("the host agent that keeps the shared memory has ended")
        self._take(messages)

    def _wait(self, stream: DescriptorStream, events: int, seconds: float) -> None:
        poll = select.poll()
        poll.register(stream.sock, events)
        if not poll.poll(max(0.0, seconds) * 1000):
            # What comes later would be taken for the answer to something else.
            self._lose()
            raise ReferenceLost(f"the host agent that keeps the shared memory has said nothing for {_PATIENCE:g} s")

    def _take(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["t"] == "freed":
                self.freed += message["segments"]
            elif message["t"] == "dropped":
                self._maps.pop(message["chunk"], None)
            else:
                self._answers.append(message)

    def _lose(self) -> None:
        self.lost = True
        if self._stream is not None:
            self._stream.sock.close()

    def close(self) -> None:
        """The end of this process's part in the program, or a forked child, which holds nothing."""
        self.lost = True
        self._maps.clear()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.sock.close()
