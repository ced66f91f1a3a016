"""A TCP connection with TLS, used in place of a non-blocking socket by links and entrances.

CPython's `ssl.SSLSocket` must not be used by two threads at once, and any thread may send on a link. So TLS runs on
buffers in memory (`ssl.SSLObject`) under a lock of its own, and this class moves the encrypted bytes.

States, and what a call makes of each:

========== ============================================= =========== ====================================
state      send                                          receive     ends when
========== ============================================= =========== ====================================
connecting would block                                   would block the kernel has connected
greeting   taken, up to `EARLY_MAX` bytes: sent when it  would block both sides have shown the certificate
           is open
open       encrypted, and written                        decrypted   one side closes, or an error
failed     error                                         error       -
========== ============================================= =========== ====================================

Any state: an error of the kernel, bytes that are not TLS of the pinned certificate, or more than `GREETING_MAX` bytes
of a stranger -> failed. OpenSSL alone would keep 100 KiB of what a stranger calls a certificate.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from typing import cast

from meshrt.transport.link import SILENCE_LOOK_SECONDS, Connection, Link
from meshrt.transport.liveness import ROOT_SECONDS, Silence
from meshrt.transport.paths import closed_after
from meshrt.wire.certificate import Certificate
from meshrt.wire.frames import Frame, FrameDecoder

__all__ = ["EARLY_MAX", "GREETING_MAX", "SecureLink", "SecureSocket"]

#: Bytes that are taken before the peer is known: the hello of the handshake (`meshrt.wire.handshake`).
EARLY_MAX = 1 << 10
#: Bytes that are read from a peer until it has shown the certificate and, where it has dialled, has proved the secret
#: (`SecureSocket.trust`). TLS takes 2 to 4 KiB, the proof of the secret 256 bytes.
GREETING_MAX = 1 << 14
#: Encrypted bytes of one call of the kernel.
_RECEIVE = 1 << 18
#: Bytes that are encrypted at once: the records of one write (16 KiB each).
_ENCRYPT = 1 << 16
#: Bytes of small parts that are joined, so that they share a record.
_JOIN = 1 << 14
#: Bytes that `SecureSocket.recv` decrypts at once: a record. Memory for as much as `Link` asks for would be mapped and
#: cleared for each message of a few bytes, at the cost of several round trips.
_DECRYPT = 1 << 14
#: As a number: operations on the flags of `socket` take longer than a decryption.
_PEEK = int(socket.MSG_PEEK)

_Part = bytes | bytearray | memoryview


class SecureSocket:
    """The methods of `socket.socket` that links and entrances use; none of them blocks. Any thread.

    A byte counts as sent once the kernel has all of the record that contains it. So what `send` does not take must be
    offered again, unchanged and in the same order, as links do with what is queued.

    Args:
        sock: A TCP socket: connected, or connecting. Owned, and made non-blocking.
        certificate: Of the program.
        server: Whether this side was dialled.
        preface: Sent before TLS, in clear (`meshrt.wire.preface`).
    """

    def __init__(self, sock: socket.socket, certificate: Certificate, *, server: bool, preface: bytes = b"") -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context(certificate, server).wrap_bio(self._incoming, self._outgoing, server_side=server)
        self._lock = threading.Lock()
        self._open = False
        #: Whether all that comes is read; or else how much more.
        self._trusted = False
        self._room = GREETING_MAX
        self._server = server
        #: Sent before the state was open.
        self._early = bytearray()
        #: Encrypted bytes that the kernel has not taken.
        self._unsent: bytes | memoryview = preface
        #: Bytes of the sender that these are: they do not count as sent yet.
        self._ahead = 0
        #: Decrypted, and looked at by MSG_PEEK.
        self._peeked = b""
        #: All that has come is decrypted, but for the beginning of a record.
        self._dry = True
        #: The peer has closed its side.
        self._ended = False

    # -- what a socket has

    def fileno(self) -> int:
        """Return the descriptor of the TCP socket."""
        return self._sock.fileno()

    def setblocking(self, flag: bool) -> None:
        """Refuse to block."""
        if flag:
            raise ValueError("a SecureSocket does not block")

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Set an option of the TCP socket."""
        self._sock.setsockopt(level, option, value)

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        """Return an option of the TCP socket."""
        return self._sock.getsockopt(level, option, size)

    def getpeername(self) -> tuple[str, int]:
        """Return the address of the other side of the TCP socket. Raises OSError."""
        host, port = self._sock.getpeername()[:2]
        return host, port

    def detach(self) -> int:
        """Give the descriptor away, which is not closed."""
        return self._sock.detach()

    def close(self) -> None:
        """Close the connection: what was sent before still arrives."""
        with self._lock:
            self._sock.close()

    def trust(self) -> None:
        """The peer has proved the secret of the program: all that it sends is read."""
        with self._lock:
            self._trusted = True
            self._room = _RECEIVE

    @property
    def pending(self) -> bool:
        """Whether bytes have come that the kernel does not know of any more: `recv` returns them."""
        return not self._dry or bool(self._peeked)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return up to ``size`` bytes, b"" at the end.

        Raises:
            BlockingIOError: There are none now.
            OSError: The connection has failed.
        """
        with self._lock:
            if not flags & _PEEK:
                if not self._peeked:
                    return self._decrypt_some(size)
                data, self._peeked = self._peeked[:size], self._peeked[size:]
                return data
            try:
                while len(self._peeked) < size and (more := self._decrypt_some(size - len(self._peeked))):
                    self._peeked += more
            except BlockingIOError:
                if not self._peeked:
                    raise
            return self._peeked[:size]

    def recv_into(self, target: memoryview) -> int:
        """As `recv`, into ``target``; returns how many bytes."""
        with self._lock:
            if not self._peeked:
                return self._decrypt(target)
            count = min(len(target), len(self._peeked))
            target[:count] = self._peeked[:count]
            self._peeked = self._peeked[count:]
            return count

    def send(self, data: _Part, _flags: int = 0) -> int:
        """Take some of ``data``; returns how many bytes. The flags are always those of this class.

        Raises:
            BlockingIOError: None can be taken now. `flush` of the link tries again when the socket is writable.
            OSError: The connection has failed.
        """
        return self.sendmsg([data])

    def sendmsg(self, parts: Sequence[_Part], _ancillary: tuple[()] = (), _flags: int = 0) -> int:
        """As `send`, for several parts."""
        with self._lock:
            self._write_unsent()
            if not self._open:
                return self._take_early(parts)
            taken, self._ahead = self._ahead, 0
            try:
                for chunk in _chunks(parts, taken):
                    self._tls.write(chunk)
                    self._unsent = self._outgoing.read()
                    self._ahead = len(chunk)
                    self._write_unsent()
                    taken += self._ahead
                    self._ahead = 0
            except BlockingIOError:
                if not taken:
                    raise
            except ssl.SSLError as error:
                raise _failure(error) from None
            return taken

    # -- TLS; with the lock

    def _take_early(self, parts: Sequence[_Part]) -> int:
        size = sum(map(len, parts))
        if len(self._early) + size > EARLY_MAX:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._greet()
        self._write_unsent()  # the kernel must have connected
        for part in parts:
            self._early += part
        return size

    def _greet(self) -> None:
        """Go on with the greeting, as far as what has come allows."""
        try:
            self._tls.do_handshake()
            self._open = True
            if not self._server:  # it knows who it has dialled
                self._trusted = True
                self._room = _RECEIVE
            if self._early:
                self._tls.write(self._early)
                self._early.clear()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._say_why()
            raise _failure(error) from None
        self._unsent = bytes(self._unsent) + self._outgoing.read()

    def _say_why(self) -> None:
        """Send the alert that tells the peer of an error, if the kernel takes it."""
        with contextlib.suppress(OSError):  # the peer sees the end of the connection
            self._sock.send(self._outgoing.read(), socket.MSG_NOSIGNAL)

    def _write_unsent(self) -> None:
        """Raises BlockingIOError: not all of it was taken."""
        while self._unsent:
            sent = self._sock.send(self._unsent, socket.MSG_NOSIGNAL)
            self._unsent = memoryview(self._unsent)[sent:] if sent < len(self._unsent) else b""

    def _decrypt_some(self, size: int) -> bytes:
        data = bytearray(min(size, _DECRYPT))
        return bytes(memoryview(data)[: self._decrypt(memoryview(data))])

    def _decrypt(self, target: memoryview) -> int:
        """Decrypt into ``target``; what has come is enough, or the kernel is asked once. 0: the end."""
        if not (self._open and self._dry):
            count = self._decrypt_received(target)
            if count or self._ended:
                return count
        if not self._room:
            raise ConnectionAbortedError(errno.ECONNABORTED, f"more than {GREETING_MAX} bytes before the proof")
        data = self._sock.recv(self._room)
        if not data:
            return 0
        if not self._trusted:
            self._room -= len(data)
        self._incoming.write(data)
        count = self._decrypt_received(target)
        if not count and not self._ended:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return count

    def _decrypt_received(self, target: memoryview) -> int:
        """Decrypt what has come, as far as ``target`` has room; 0: no whole record is there, or the end is."""
        count = 0
        try:
            if not self._open:
                self._greet()
                with contextlib.suppress(BlockingIOError):  # the next call goes on
                    self._write_unsent()
            # What is neither here nor there is at most the beginning of a record: asked for, it would be an exception.
            while self._open and count < len(target) and (self._incoming.pending or self._tls.pending()):
                # With a buffer it returns a number; typeshed knows only the other way.
                read = cast(int, self._tls.read(len(target) - count, target[count:]))
                if not read:
                    self._ended = True
                    break
                count += read
            self._dry = count < len(target)
        except ssl.SSLWantReadError:
            self._dry = True
        except ssl.SSLZeroReturnError:
            self._ended = self._dry = True
        except ssl.SSLError as error:
            raise _failure(error) from None
        return count


def _chunks(parts: Sequence[_Part], skip: int) -> Iterator[_Part]:
    """Yield what is encrypted at once, without the first ``skip`` bytes: small parts joined, large ones divided."""
    if len(parts) == 1 and not skip and len(parts[0]) <= _JOIN:
        yield parts[0]
        return
    joined = bytearray()
    for part in parts:
        view = memoryview(part)[skip:]
        skip -= len(part) - len(view)
        if len(joined) + len(view) > _JOIN:
            if joined:
                yield joined
                joined = bytearray()
            if len(view) > _JOIN:
                for start in range(0, len(view), _ENCRYPT):
                    yield view[start : start + _ENCRYPT]
                continue
        joined += view
    if joined:
        yield joined


def _failure(error: ssl.SSLError) -> ConnectionError:
    """An error whose number is one of the system's: those of `ssl` have other meanings there."""
    return ConnectionAbortedError(errno.ECONNABORTED, f"TLS failed: {error.reason or error}")


@functools.cache
def _context(own: Certificate, server: bool) -> ssl.SSLContext:
    """Return what one side needs: TLS 1.3, both sides show this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate itself is trusted, at whatever address
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=own.certificate.decode("ascii"))
    # `ssl` reads keys from files only: one in memory, which has no name.
    with closed_after(os.memfd_create("meshrt-key", os.MFD_CLOEXEC)) as file:
        os.write(file, own.certificate + own.key)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    if server:
        context.num_tickets = 0  # no session is resumed: nothing comes but what the peer sends
    return context


class SecureLink(Link):
    """A link over TLS."""

    __slots__ = ("_secure", "_silence")

    def __init__(self, sock: Connection, decoder: FrameDecoder | None = None) -> None:
        if not isinstance(sock, SecureSocket):
            raise TypeError(f"a SecureLink needs a SecureSocket, not a {type(sock).__name__}")
        super().__init__(sock, decoder)
        self._secure = sock
        self._silence = Silence(ROOT_SECONDS, SILENCE_LOOK_SECONDS)

    def is_silent(self) -> bool:
        """As `Link.is_silent`."""
        return self._silence.look(self._secure)

    @property
    def pending(self) -> bool:
        """Whether bytes are decrypted, or can be, that no call has returned yet."""
        return self._secure.pending

    def read(self) -> list[Frame] | None:
        """As `Link.read`, with all that was decrypted: the kernel does not call for that again.

        An error, or the end, behind what is returned is found by the next read.
        """
        frames = super().read()
        if frames is not None and self._secure.pending:
            with contextlib.suppress(OSError):
                while self._secure.pending:
                    frames += self._receive() or ()
        return frames
