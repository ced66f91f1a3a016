"""Connecting to a rank: by a unix socket on this machine, by TLS at the data port of another one, or by the root.

The way to a rank of another machine has to be found first (`meshrt.transport.routes`), once for each host. Where its
host cannot be reached, the root is asked for a way (`Way`): it has the host dial, and passes on what comes.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshrt.errors import AuthenticationError
from meshrt.transport.link import Connection, Link, peer_of
from meshrt.transport.liveness import ROOT_SECONDS, end_when_silent
from meshrt.transport.racing import begin_to_connect
from meshrt.transport.routes import Routes
from meshrt.wire.addresses import Port, RankAddress, Way
from meshrt.wire.preface import preface

if TYPE_CHECKING:
    from meshrt.wire.certificate import Certificate
    from meshrt.wire.frames import FrameDecoder

__all__ = ["Connector", "Opened", "Relay", "link_of", "peer_address", "secured", "trust"]

#: Seconds that a `connect` may wait for a place in the rank's backlog.
_CONNECT_SECONDS = 10
#: How often the kernel tries again to connect to another machine: for 15 s in all.
_SYN_COUNT = 3


#: Called once, maybe on another thread: with the way, with a socket that leads to the rank, or with why there is none.
Opened = Callable[["Way | socket.socket | OSError"], None]
#: Asks the root for a way to a rank, and says why its host cannot be reached.
Relay = Callable[[RankAddress, str, Opened], None]


def _no_relay(address: RankAddress, why: str, opened: Opened) -> None:
    opened(ConnectionError(f"{address} cannot be reached: {why}"))


class Connector:
    """Makes the connections of a process. Any thread.

    Args:
        machine: Returns the number of the machine that this process is on, 0 if that is not known yet.
        certificate: Returns that of the program; None: it has one machine.
        secret: Hosts prove that they have it.
        relay: Asks the root for a way.
    """

    def __init__(
        self,
        machine: Callable[[], int] = lambda: 0,
        certificate: Callable[[], Certificate | None] = lambda: None,
        secret: bytes = b"",
        relay: Relay = _no_relay,
    ) -> None:
        self._machine = machine
        self._certificate = certificate
        self._relay = relay
        self._routes = Routes(secret)

    def is_elsewhere(self, address: RankAddress) -> bool:
        """Whether a rank is on another machine."""
        return bool(address.host.ports) and address.host.machine != self._machine()

    def knows(self, address: RankAddress) -> bool:
        """Whether a rank can be connected to without a search for the way to it."""
        return not self.is_elsewhere(address) or self._routes.known(address.host) is not None

    def connect(self, address: RankAddress) -> Link | None:
        """Return a link to a rank. On another machine it is connected later, which the first write waits for.

        Returns:
            None: The way to it has to be found first.
        Raises:
            OSError: The rank does not listen (yet), or this process is short of something.
            AuthenticationError: The socket belongs to another user.
        """
        if not self.is_elsewhere(address):
            return _here(address.path)
        if self._certificate() is None:
            # It is on its way to this process, before what the root answers next.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "this process has no certificate yet")
        route = self._routes.known(address.host)
        return None if route is None else self._elsewhere(route, address.name)

    def search(self, address: RankAddress, done: Callable[[], None]) -> None:
        """Search the host of a rank; ``done`` is called once, maybe at once, maybe on another thread."""
        self._routes.find(address.host, done)

    def find(self, address: RankAddress, found: Callable[[Link | OSError], None]) -> None:
        """Find a way; ``found`` is called with a link or an error, once, maybe at once, maybe on another thread."""
        self._routes.find(address.host, functools.partial(self._searched, address, found))

    def doubt(self, address: RankAddress) -> None:
        """A connection to a rank was lost: the way to its host is searched anew for the next one."""
        self._routes.doubt(address.host)

    def _searched(self, address: RankAddress, found: Callable[[Link | OSError], None]) -> None:
        route, why = self._routes.known(address.host), self._routes.problem(address.host)
        if route is not None:
            self._opened(found, Way(route, address.name))
        elif why:
            self._relay(address, why, functools.partial(self._opened, found))
        else:  # it was doubted since: a connection of another rank there was lost
            self.find(address, found)

    def _opened(self, found: Callable[[Link | OSError], None], opened: Way | socket.socket | OSError) -> None:
        try:
            if isinstance(opened, Way):
                found(self._elsewhere(opened.port, opened.name))
            elif isinstance(opened, OSError):
                found(opened)
            else:
                found(self._link(opened))
        except OSError as error:
            found(error)
        except AuthenticationError as error:
            found(ConnectionError(str(error)))

    def _elsewhere(self, port: Port, name: str) -> Link:
        sock = begin_to_connect(port)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, _SYN_COUNT)
        return self._link(sock, preface(name))

    def _link(self, sock: socket.socket, first: bytes = b"") -> Link:
        from meshrt.transport.secured import SecureLink, SecureSocket  # start-up: as below

        try:
            certificate = self._certificate()
            if certificate is None:
                raise AuthenticationError("a rank is on another machine, and this process has no certificate")
            end_when_silent(sock, ROOT_SECONDS)
            return SecureLink(SecureSocket(sock, certificate, server=False, preface=first))
        except BaseException:
            sock.close()
            raise


def _here(path: str) -> Link:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A time-out of Python's own would make the socket non-blocking: a full backlog is an error at once then.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECT_SECONDS, 0))
        sock.connect(path)
        uid = peer_of(sock)[1]
        if uid < 0:  # it waited for a place in the backlog, a signal came, and Python takes that for a connection
            raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))
        if uid != os.geteuid():
            raise AuthenticationError(f"{path} is served by another user")
        return Link(sock)
    except BaseException:
        sock.close()
        raise


def secured(sock: socket.socket, certificate: Certificate) -> Connection:
    """Return the connection of a peer on another machine, which has dialled."""
    from meshrt.transport.secured import SecureSocket  # start-up: `ssl`, for programs on several machines

    end_when_silent(sock, ROOT_SECONDS)
    return SecureSocket(sock, certificate, server=True)


def trust(sock: Connection) -> None:
    """The peer of a connection that has dialled has proved the secret: all that it sends is read from now on."""
    if not isinstance(sock, socket.socket):
        from meshrt.transport.secured import SecureSocket  # start-up: as above

        if isinstance(sock, SecureSocket):
            sock.trust()


def link_of(sock: Connection, decoder: FrameDecoder | None = None) -> Link:
    """Return a link on a connection of this machine, or of another one."""
    if isinstance(sock, socket.socket):
        return Link(sock, decoder)
    from meshrt.transport.secured import SecureLink  # start-up: as above

    return SecureLink(sock, decoder)


def peer_address(sock: Connection) -> Port | None:
    """Return the address of the other side of a TCP connection; None: it is another kind, or closed."""
    from meshrt.transport.secured import SecureSocket  # start-up: as above

    if not isinstance(sock, SecureSocket):
        return None
    try:
        host, port = sock.getpeername()
    except OSError:
        return None
    return host.removeprefix("::ffff:"), port
