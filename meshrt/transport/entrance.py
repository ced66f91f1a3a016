"""Where peers enter: connections are accepted, and prove the secret before anything else is read from them.

::

    accepted            --its hello-->                                          answered
    answered            --its proof-->                                          let in
    accepted, answered  --invalid bytes, an endpoint that is not served here,
                          the end of its data, no time left, another version,
                          `UNPROVED_MAX` newer ones-->                          closed

A connection has `HANDSHAKE_SECONDS` for its hello. They begin anew when it is answered: the peer can prove itself only
from then on, and code that holds the GIL may have used up the time. Until it is let in, a connection costs 256 bytes,
and the kernel discards descriptors that it attaches. What is let in belongs to the owner of the entrance.
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
from meshrt.transport.link import Connection, peer_of
from meshrt.transport.refusals import Refusals
from meshrt.wire.handshake import HANDSHAKE_SECONDS, UNPROVED_MAX, Identity, ServerHandshake

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
        self._later = later
        self._identity = identity
        self._serves = serves
        self._refuses = refuses
        #: Those that are not let in yet, the oldest first, and until when they have time (monotonic).
        self._unproved: dict[C, ServerHandshake] = {}
        self._deadlines: dict[C, float] = {}
        self._timed = False
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

    def admit(self, sock: C) -> None:
        """Take a connection that was accepted, and have its peer prove the secret."""
        if len(self._unproved) >= UNPROVED_MAX:
            self._refuse(next(iter(self._unproved)))
        try:
            self._readers.add_reader(sock, functools.partial(self._read, sock))
        except OSError as error:
            self._fail(sock, error)
            return
        self._unproved[sock] = ServerHandshake(self._secret, self._role, self._identity(), self._refuses)
        self._give_time(sock)

    def _read(self, sock: C) -> None:
        handshake = self._unproved.get(sock)
        if handshake is None:  # closed since it was found readable
            return
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
            self._forget(sock)
            try:
                self._let_in(sock, handshake)
            except OSError as error:
                self._fail(sock, error)
        elif answer:
            self._give_time(sock)

    def _fail(self, sock: C, error: OSError) -> None:
        """This side is short of something; the peer dials again."""
        logging.getLogger("meshrt").error("%s cannot be let in: %s", self._peer, error.strerror)
        sock.close()

    def _note(self, sock: C, error: Exception) -> None:
        self.refusals.note(f"{self._peer} (pid {peer_of(sock)[0]})", error)
        self._refuse(sock)

    def _refuse(self, sock: C) -> None:
        self._forget(sock)
        sock.close()

    def _forget(self, sock: C) -> None:
        del self._unproved[sock], self._deadlines[sock]
        self._readers.remove_reader(sock)

    def _give_time(self, sock: C) -> None:
        self._deadlines[sock] = time.monotonic() + HANDSHAKE_SECONDS
        if not self._timed:
            self._timed = True
            self._later(HANDSHAKE_SECONDS, self._expire)

    def _expire(self) -> None:
        """Close those that have no time left. One timer serves all: most are let in long before."""
        now = time.monotonic()
        for sock in [sock for sock, deadline in self._deadlines.items() if deadline <= now]:
            self._refuse(sock)
        self._timed = bool(self._deadlines)
        if self._timed:
            self._later(min(self._deadlines.values()) - now, self._expire)


def _plain(admit: Callable[[C], None]) -> Callable[[socket.socket], None]:
    """An entrance with a listener takes its sockets, whatever else it takes."""
    return cast("Callable[[socket.socket], None]", admit)
