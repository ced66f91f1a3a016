"""The connections of the store (`meshrt.store.messages`): a unix socket of their own, with descriptors.

After the handshake (`meshrt.wire.handshake`, role store) control frames in both directions. Descriptors go along with
the first byte of the message that they belong to, which says how many they are.

Stores of two hosts have the same messages, by a unix socket or by TLS, but no descriptors. Bytes of a segment (`Piece`)
are frames of their own there: they are received straight into the file that they belong to.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import termios
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from meshrt.errors import ProtocolError
from meshrt.store.messages import Piece, WithDescriptors
from meshrt.transport.link import LATER, Connection
from meshrt.wire.control import Catalogue, Message, control_frame
from meshrt.wire.frames import Frame, Unreceived, control_decoder, pack_header
from meshrt.wire.messages import CONTROL, PIECE

__all__ = ["DescriptorStream", "HostStream", "Incoming", "close_descriptors", "queue_piece", "store_path"]

#: Descriptors that one read may bring.
_DESCRIPTORS = 16
_READ = 1 << 16

M = TypeVar("M")


def store_path(directory: str, agent_pid: int) -> str:
    """Return where the store of a host agent listens."""
    return f"{directory}/store.{agent_pid}"


class Incoming(NamedTuple, Generic[M]):
    """A message that has come, and the descriptors that have come with it.

    Its handler closes the descriptors, or removes those that it keeps from the list.
    """

    message: M
    descriptors: list[int]


class DescriptorStream:
    """A stream of control messages with descriptors. One thread at a time.

    Raises OSError where the socket does, and ProtocolError for foreign bytes.
    """

    def __init__(self, sock: Connection, place: Callable[[int, Any, int], memoryview | None] | None = None) -> None:
        self.sock = sock
        # A thread that waits for a lost message is told by the end of the connection.
        self._decoder = control_decoder(_no_memory, place)
        #: Bytes that were read so far.
        self.received = 0
        #: What is queued, and the descriptors that go with it, which are closed then.
        self.unsent: deque[tuple[memoryview, list[int]]] = deque()
        #: Descriptors that have come, in the order of their messages.
        self.descriptors: deque[int] = deque()

    def queue(self, message: Message) -> None:
        """Add a message to what `flush` sends."""
        self.unsent.append((memoryview(control_frame(message)), []))

    def queue_with(self, message: WithDescriptors, descriptors: Sequence[int]) -> None:
        """Add a message that descriptors go with to what `flush` sends.

        Duplicates of them are queued, so the caller may close its own meanwhile.

        Raises:
            OSError: There are no descriptors left for that; nothing is queued.
        """
        data = memoryview(control_frame(msgspec.structs.replace(message, fds=len(descriptors))))
        own: list[int] = []
        try:
            own.extend(os.dup(descriptor) for descriptor in descriptors)  # as far as there are some, if one fails
        except OSError:
            close_descriptors(own)
            raise
        self.unsent.append((data, own))

    def flush(self) -> bool:
        """Send what is queued, as far as the socket takes it. Returns whether nothing is left."""
        while self.unsent:
            data, descriptors = self.unsent[0]
            try:
                sent = _send_with(self.sock, data, descriptors) if descriptors else self.sock.send(data)
            except OSError as error:
                if error.errno in LATER:
                    return False
                raise
            if sent == len(data):
                self.unsent.popleft()
            else:
                self.unsent[0] = (data[sent:], [])
            close_descriptors(descriptors)
        return True

    def feed(self, data: bytes, catalogue: Catalogue[M]) -> list[Incoming[M]]:
        """Return the messages that ``data`` completes.

        Args:
            catalogue: What the peer may send.
        Raises:
            ProtocolError: One of them is invalid, or descriptors belong to no message. What came with it is lost: the
                connection cannot be used any more.
        """
        messages: list[Incoming[M]] = []
        try:
            for frame in self._decoder.receive_data(data):
                message = self._decode(frame, catalogue)
                count = min(message.fds, len(self.descriptors)) if isinstance(message, WithDescriptors) else 0
                messages.append(Incoming(message, [self.descriptors.popleft() for _ in range(count)]))
            # Those of a message come with its first byte.
            if len(self.descriptors) > (0 if self._decoder.at_boundary else _DESCRIPTORS):
                raise ProtocolError(f"{len(self.descriptors)} descriptors that belong to no message")
        except BaseException:
            close_descriptors(*(incoming.descriptors for incoming in messages))
            raise
        return messages

    def _decode(self, frame: Frame, catalogue: Catalogue[M]) -> M:
        if frame.kind != CONTROL:
            raise ProtocolError(f"a frame of kind {frame.kind}; expected a control message")
        return catalogue.decode(frame.payload)

    def receive(self, *, descriptors: bool = True) -> bytes | None:
        """Read once; None: nothing is there. Empty at the end of the stream.

        Args:
            descriptors: Whether the peer may send any. If not (it has not proved the secret yet, or has no reason to),
                the kernel discards what it attaches: nothing of it is ever open in this process.
        """
        try:
            if descriptors and isinstance(self.sock, socket.socket):
                data, received, _, _ = socket.recv_fds(self.sock, _READ, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
                self.descriptors += received
            else:
                data = self.sock.recv(_READ)
        except OSError as error:
            if error.errno in LATER:
                return None
            raise
        self.received += len(data)
        return data

    def read(self, catalogue: Catalogue[M]) -> list[Incoming[M]] | None:
        """Read once. Returns the messages that are complete now, or None at the end of the stream.

        Args:
            catalogue: What the peer may send.
        """
        data = self.receive()
        if data is None:
            return []
        return self.feed(data, catalogue) if data else None

    def unread(self) -> int:
        """Return how many bytes have come that were not read."""
        found = array.array("i", [0])
        fcntl.ioctl(self.sock.fileno(), termios.FIONREAD, found)
        return found[0]

    def close(self) -> None:
        """Close the socket, and the descriptors that have not gone out, or have come and belong to no message yet."""
        self.sock.close()
        close_descriptors(self.descriptors)
        self.discard()

    def discard(self) -> None:
        """Drop what is queued: the peer reads no more."""
        while self.unsent:
            close_descriptors(self.unsent.popleft()[1])


class HostStream(DescriptorStream):
    """A connection to the store of another host, which brings bytes of segments. One thread.

    Args:
        place: ``place(number, size)`` returns where a piece is to be received; None: in memory of its own.
    """

    def __init__(self, sock: Connection, place: Callable[[int, int], memoryview | None]) -> None:
        super().__init__(sock, lambda kind, number, size: place(number, size) if kind == PIECE else None)

    @property
    def pending(self) -> bool:
        """Whether there is something to read that the kernel does not know of."""
        return bool(getattr(self.sock, "pending", False))

    def read_all(self, catalogue: Catalogue[M]) -> list[Piece | M] | None:
        """Read once. Returns the messages that are complete now, or None at the end of the stream.

        Raises:
            BlockingIOError: Nothing is there.
        """
        target = self._decoder.get_buffer()
        if target is None:
            data = self.receive(descriptors=False)  # what another machine has is not open here
            if data is None:
                raise BlockingIOError
            return self.messages(data, catalogue) if data else None
        count = self.sock.recv_into(target)
        self.received += count
        return self._messages(self._decoder.buffer_updated(count), catalogue) if count else None

    def messages(self, data: bytes, catalogue: Catalogue[M]) -> list[Piece | M]:
        """Return the messages that ``data`` completes."""
        return self._messages(self._decoder.receive_data(data), catalogue)

    def _messages(self, frames: Sequence[Frame], catalogue: Catalogue[M]) -> list[Piece | M]:
        return [
            Piece(_number(frame.header), frame.payload) if frame.kind == PIECE else self._decode(frame, catalogue)
            for frame in frames
        ]


def queue_piece(stream: DescriptorStream, piece: Piece) -> None:
    """Add a piece to what `DescriptorStream.flush` sends."""
    stream.unsent.append((memoryview(pack_header(PIECE, piece.id, len(piece.data))), []))
    stream.unsent.append((memoryview(piece.data), []))


def _number(header: object) -> int:
    if not isinstance(header, int):
        raise ProtocolError("a piece without the number of a question")
    return header


def _send_with(sock: Connection, data: memoryview, descriptors: Sequence[int]) -> int:
    """Send ``data`` with descriptors, which only processes of this machine are sent."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    return cast(socket.socket, sock).sendmsg([data], rights)


def _no_memory(lost: Unreceived) -> None:
    raise OSError(errno.ENOMEM, str(lost.error()))


def close_descriptors(*lists: MutableSequence[int]) -> None:
    """Close the descriptors in these lists, and empty them."""
    for descriptors in lists:
        while descriptors:
            os.close(descriptors.pop())
