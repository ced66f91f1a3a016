"""One connection: a non-blocking socket (of unix, or TLS on TCP), a frame decoder, and what could not be written yet.

Rules:

* One thread reads at a time (its owner); any thread may send.
* A frame is written whole or queued behind what is queued: the order of sends is the order on the wire.
* ``send`` never blocks. What the socket did not take stays in ``backlog``; the thread that drives the link calls
  `flush` when the socket is writable.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from meshrt.errors import ProtocolError
from meshrt.transport.dropping import QUESTION_BYTES
from meshrt.wire.frames import Frame, FrameDecoder
from meshrt.wire.handshake import UNKNOWN_PEER, Identity

__all__ = ["LATER", "SILENCE_LOOK_SECONDS", "Connection", "Link", "kept", "peer_of", "same_user"]

#: Seconds between two calls of `Link.is_silent`.
SILENCE_LOOK_SECONDS = 1.0

_RECV = 1 << 18
#: ... where there is no memory for that.
_RECV_SMALL = 1 << 12
# The C library maps memory of this size anew for each read, until some of it was freed once (M_MMAP_THRESHOLD grows): a
# call took a third more time in a rank. Ranks inherit it from the process that they are forked from.
bytes(_RECV)
_IOV = 64
#: The kernel cannot do it now: the socket is full or empty, or memory is short. It is tried again.
LATER = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.ENOBUFS})
#: Where a process has set SIGPIPE back to what the kernel does with it, a peer that has ended must not end it.
_FLAGS = socket.MSG_NOSIGNAL
#: What the kernel may hold of a link: a payload of this size is written at once, without waking each other in turns.
_SEND_BUFFER = 1 << 20


class Connection(Protocol):
    """What a link needs of its socket: one of this machine, or TLS to another one (`meshrt.transport.secured`)."""

    def fileno(self) -> int: ...
    def setblocking(self, flag: bool, /) -> None: ...
    def setsockopt(self, level: int, option: int, value: int, /) -> None: ...
    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...
    def recv(self, size: int, flags: int = 0, /) -> bytes: ...
    def recv_into(self, target: memoryview, /) -> int: ...
    def send(self, data: bytes | bytearray | memoryview, flags: int = 0, /) -> int: ...
    def sendmsg(
        self, parts: Sequence[bytes | bytearray | memoryview], ancillary: tuple[()] = (), flags: int = 0, /
    ) -> int: ...
    def detach(self) -> int: ...
    def close(self) -> None: ...


class Link:
    """A connected socket that speaks frames."""

    __slots__ = (
        "_borrowed",
        "_decoder",
        "_fd",
        "_lock",
        "_peer",
        "backlog",
        "backlog_bytes",
        "client",
        "closed",
        "error",
        "reader_gone",
        "sock",
        "urgent",
    )

    def __init__(self, sock: Connection, decoder: FrameDecoder | None = None) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # the kernel's own size will do
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.sock: Connection = sock
        self._fd = sock.fileno()
        self._decoder = decoder or FrameDecoder()
        self._lock = threading.Lock()
        #: The process that has dialled, as it says itself.
        self.client: Identity = UNKNOWN_PEER
        #: Its calls overtake those of other links (`meshrt.wire.messages.URGENT`).
        self.urgent: bool = False
        #: Asked for once: see `peer`.
        self._peer = -1
        self.backlog: deque[memoryview | bytes] = deque()
        self.backlog_bytes: int = 0
        #: How many of the last ones in it belong to their sender, which may change them.
        self._borrowed = 0
        self.closed: bool = False
        #: Why its stream has ended, if that was an error.
        self.error: OSError | None = None
        #: The peer does not read any more; what is sent is dropped, what it sent before can still be read.
        self.reader_gone: bool = False

    def fileno(self) -> int:
        """Return the descriptor; the same number after `close`."""
        return self._fd

    @property
    def peer(self) -> int:
        """The pid of the process at the other end; 0 if the link was closed before it was asked for."""
        if self._peer < 0:
            try:
                self._peer = peer_of(self.sock)[0]
            except OSError:
                self._peer = 0
        return self._peer

    @property
    def caller(self) -> int:
        """The process at the other end: its pid, or on another machine its number, as it says (`Identity.number`)."""
        return self.peer or self.client.number

    @property
    def pending(self) -> bool:
        """Whether there is something to read that the kernel does not know of."""
        return False

    @property
    def full(self) -> bool:
        """Whether so much waits for the peer that questions are not sent any more: they count as not answered."""
        return self.backlog_bytes >= QUESTION_BYTES

    def send(self, parts: list[bytes | bytearray | memoryview]) -> bool:
        """Write the parts, or queue what the socket does not take now. Returns True when all is written."""
        with self._lock:
            if self.closed or self.reader_gone:
                return True
            if not self.backlog:
                if len(parts) == 1:
                    data = parts[0]
                    try:
                        sent = self.sock.send(data, _FLAGS)
                    except OSError as error:
                        if error.errno not in LATER:
                            self.reader_gone = True
                            return True
                        sent = 0
                    if sent == len(data):
                        return True
                    parts = [memoryview(data)[sent:]]
                self._queue(parts)
                return self._flush()
            self._queue(parts)
            return False

    def _queue(self, parts: list[bytes | bytearray | memoryview]) -> None:
        self.backlog.extend(memoryview(part) for part in parts)
        self.backlog_bytes += sum(len(part) for part in parts)
        self._borrowed += len(parts)

    def keep_backlog(self) -> bool:
        """Copy what is queued, so that its owners may change their buffers.

        Returns:
            False: There is no memory for a copy. The buffers are in use until they are written.
        """
        with self._lock:
            self._borrowed = min(self._borrowed, len(self.backlog))
            try:
                while self._borrowed:
                    self.backlog[-self._borrowed] = memoryview(kept(self.backlog[-self._borrowed]))
                    self._borrowed -= 1
            except MemoryError:
                return False
        return True

    def flush(self) -> bool:
        """Write what is queued as far as the socket takes it. Returns True when nothing is left."""
        with self._lock:
            return self._flush()

    def _flush(self) -> bool:
        backlog = self.backlog
        try:
            while backlog:
                batch = [backlog[index] for index in range(min(len(backlog), _IOV))]
                sent = self.sock.sendmsg(batch, (), _FLAGS)
                self.backlog_bytes -= sent
                while sent:
                    part = backlog[0]
                    if len(part) <= sent:
                        sent -= len(part)
                        backlog.popleft()
                    else:
                        backlog[0] = part[sent:]
                        sent = 0
        except OSError as error:
            if error.errno in LATER:
                return False
            self.reader_gone = True
            backlog.clear()
            self.backlog_bytes = 0
        return True

    def read(self) -> list[Frame] | None:
        """Read once. Returns the frames completed (maybe none), or None at the end of the stream.

        Raises:
            ProtocolError: Foreign bytes; close the link.
        """
        try:
            return self._receive()
        except OSError as error:
            if error.errno in LATER:
                return []
            self.error = error
            return None

    def drain(self) -> list[Frame]:
        """Read all that is there now, to the end of the stream or to an empty socket."""
        frames: list[Frame] = []
        while True:
            try:
                new = self._receive()
            except (OSError, ProtocolError):
                return frames
            if new is None:
                return frames
            frames.extend(new)

    def _receive(self) -> list[Frame] | None:
        target = self._decoder.get_buffer()
        if target is None:
            try:
                data = self.sock.recv(_RECV)
            except MemoryError:
                data = self.sock.recv(_RECV_SMALL)
            return self._decoder.receive_data(data) if data else None
        count = self.sock.recv_into(target)
        return self._decoder.buffer_updated(count) if count else None

    def unread(self, most: int) -> int | None:
        """Return how many messages have come that were not read; None: more than ``most`` bytes of them.

        Any thread, while the one that reads does something else.
        """
        try:
            data = self.sock.recv(most + 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            data = b""
        except OSError:
            return 0  # it is closed: nothing comes any more
        return self._decoder.begun(data) if len(data) <= most else None

    def at_end(self) -> bool:
        """Whether the peer has closed its end, and all that it wrote has been read."""
        try:
            return not self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hung_up(self) -> bool:
        """Whether the peer has closed its end, whatever is still to be read."""
        poll = select.poll()
        try:
            poll.register(self.sock, select.POLLRDHUP)
        except ValueError:  # closed here
            return True
        return bool(poll.poll(0))

    def is_silent(self) -> bool:
        """Whether another machine has not acknowledged for long what was sent. Asked every `SILENCE_LOOK_SECONDS`."""
        return False

    def at_rest(self) -> bool:
        """Whether nothing is there to be read (the end of the stream is something), and nothing waits to be written."""
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self.backlog
        except OSError:
            pass
        return False

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes that were read from the socket before this link existed (after a handshake)."""
        return self._decoder.receive_data(data)

    def close(self) -> None:
        """Close the socket; twice is fine."""
        with self._lock:
            if not self.closed:
                self.closed = True
                self.backlog.clear()
                self.backlog_bytes = 0
                self.sock.close()


def kept(part: bytes | bytearray | memoryview) -> bytes | memoryview:
    """Return bytes that cannot be changed: these ones, or a copy. Raises MemoryError."""
    view = memoryview(part)
    return view if type(view.obj) is bytes else bytes(view)


def peer_of(sock: Connection) -> tuple[int, int]:
    """Return (pid, uid) of the process at the other end of a unix socket, as the kernel knows them."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def same_user(sock: Connection) -> bool:
    """Whether the other end belongs to this user."""
    return peer_of(sock)[1] == os.geteuid()
