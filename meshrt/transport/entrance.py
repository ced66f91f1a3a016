"""Where peers enter: connections are accepted, and prove the secret before anything else is read from them.

::

    accepted            --its hello-->                                          answered
    answered            --its proof-->                                          let in
    accepted, answered  --invalid bytes, an endpoint that is not served here,
                          the end of its data, no time left, another version,
                          `UNPROVED_MAX` newer ones-->                          closed

A connection has `HELLO_SECONDS` for its hello, and `HANDSHAKE_SECONDS` in all, from when it was accepted: by the data
port, if it is of another machine. Time that this side has used up does not count, as code does that holds the GIL: one
that is given late begins anew, and one that is answered late has `ANSWERED_SECONDS` for its proof. Until it is let in,
a connection costs 256 bytes (in TLS: see `meshrt.transport.secured`), and the kernel discards descriptors that it
attaches. What is let in belongs to the owner of the entrance.
"""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from meshrt.errors import ProtocolError
from meshrt.transport.acceptor import Acceptor, Readers
from meshrt.transport.connecting import trust
from meshrt.transport.deadlines import Deadlines
from meshrt.transport.link import Connection, peer_of
from meshrt.transport.refusals import Refusals
from meshrt.wire.handshake import (
    ANSWERED_SECONDS,
    HANDSHAKE_SECONDS,
    HELLO_SECONDS,
    UNPROVED_MAX,
    Identity,
    ServerHandshake,
)

__all__ = ["Entrance"]

C = TypeVar("C", bound=Connection)

#: More than a peer may send before it is let in.
_READ = 4096


class Entrance(Generic[C]):
    """Lets peers in that hold a secret. One thread: that of the readers.

    Args:
        readers: Call functions when sockets can be read.
        listener: It listens already. Closed with this. None: connections come from `admit` alone.
        peer: What a process that connects is called in the log: "a caller".
        secret, role: What a peer proves, and as what (`meshrt.wire.handshake`).
        let_in: Called with each socket that is let in, which does not block, and its handshake: it has the endpoint,
            the identity of the peer, and what came behind the proof. If it raises OSError, the socket is closed.
        later: Calls a function after some seconds, on that thread.
        identity: Returns the identity of this side; None: its pid is enough.
        serves: Whether an endpoint is served here.
        refuses: As in `ServerHandshake`: the peer is told.

    Attributes:
        refusals: The owner notes those of peers that are let in, too.
    """

    def __init__(
        self,
        readers: Readers,
        listener: socket.socket | None,
        peer: str,
        secret: bytes,
        role: int,
        let_in: Callable[[C, ServerHandshake], object],
        later: Callable[[float, Callable[[], None]], object],
        *,
        identity: Callable[[], Identity | None] = lambda: None,
        serves: Callable[[str], bool] = lambda _endpoint: True,
        refuses: Callable[[str, str], str] = lambda _endpoint, _versions: "",
    ) -> None:
        self.refusals = Refusals()
        self._readers = readers
        self._peer = peer
        self._secret = secret
        self._role = role
        self._let_in = let_in
        self._identity = identity
        self._serves = serves
        self._refuses = refuses
        #: Those that are not let in yet, the oldest first, and when they were accepted (monotonic).
        self._unproved: dict[C, tuple[ServerHandshake, float]] = {}
        self._deadlines: Deadlines[C] = Deadlines(later, self._refuse)
        self._acceptor = None if listener is None else Acceptor(readers, listener, peer, _plain(self.admit), later)

    def open(self) -> None:
        """Accept the connections that wait, and those that come."""
        if self._acceptor is not None:
            self._acceptor.open()

    def listen_again(self) -> None:
        """Listen at the same path again if its socket has been removed. Connections stay."""
        if self._acceptor is not None:
            self._acceptor.listen_again()

    def read_now(self) -> None:
        """Let in those whose proof has come: what they have sent behind it was sent before what comes now."""
        for sock in tuple(self._unproved):
            self._read(sock)

    def sockets(self) -> list[C | socket.socket]:
        """Return the listening socket, and those that are not let in yet."""
        return [*([] if self._acceptor is None else [self._acceptor.listener]), *self._unproved]

    def close(self) -> None:
        """Accept no more, and close what is not let in yet."""
        if self._acceptor is not None:
            self._acceptor.close()
        for sock in tuple(self._unproved):
            self._refuse(sock)

    def admit(self, sock: C, accepted: float | None = None) -> None:
        """Take a connection that was accepted, and have its peer prove the secret.

        Args:
            accepted: When that was (monotonic); None: now.
        """
        if len(self._unproved) >= UNPROVED_MAX:
            self._refuse(next(iter(self._unproved)))
        try:
            self._readers.add_reader(sock, functools.partial(self._read, sock))
        except OSError as error:
            self._fail(sock, error)
            return
        now = time.monotonic()
        # Or else the data port had closed it: it has waited for this process.
        begun = now if accepted is None or now - accepted > HELLO_SECONDS else accepted
        self._unproved[sock] = ServerHandshake(self._secret, self._role, self._identity(), self._refuses), begun
        self._deadlines.set(sock, begun + HELLO_SECONDS)

    def _read(self, sock: C) -> None:
        if sock not in self._unproved:  # closed since it was found readable
            return
        handshake, begun = self._unproved[sock]
        try:
            data = sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError as error:
            self._note(sock, error)
            return
        try:
            answer = handshake.receive_data(data) if data else b""
            if answer:
                sock.send(answer)
        except (OSError, ProtocolError) as error:
            self._note(sock, error)
            return
        if not data or handshake.refused or (handshake.endpoint and not self._serves(handshake.endpoint)):
            self._refuse(sock)
        elif handshake.done:
            self._read_before(sock, handshake)
            self._forget(sock)
            trust(sock)
            try:
                self._let_in(sock, handshake)
            except OSError as error:
                self._fail(sock, error)
        elif answer:
            self._deadlines.set(sock, max(begun + HANDSHAKE_SECONDS, time.monotonic() + ANSWERED_SECONDS))

    def _read_before(self, sock: C, handshake: ServerHandshake) -> None:
        """Let in what the same peer has connected before: the kernel's order of sockets is not that of their data."""
        for other, (theirs, _) in tuple(self._unproved.items()):
            if other is sock:
                return
            if theirs.client == handshake.client:
                self._read(other)

    def _fail(self, sock: C, error: OSError) -> None:
        """This side is short of something; the peer dials again."""
        logging.getLogger("meshrt").error("%s cannot be accepted: %s", self._peer, error.strerror)
        sock.close()

    def _note(self, sock: C, error: Exception) -> None:
        self.refusals.note(f"{self._peer} (pid {peer_of(sock)[0]})", error)
        self._refuse(sock)

    def _refuse(self, sock: C) -> None:
        self._forget(sock)
        sock.close()

    def _forget(self, sock: C) -> None:
        self._deadlines.drop(sock)
        del self._unproved[sock]
        self._readers.remove_reader(sock)


def _plain(admit: Callable[[C], None]) -> Callable[[socket.socket], None]:
    """An entrance with a listener takes its sockets, whatever else it takes."""
    return cast("Callable[[socket.socket], None]", admit)
