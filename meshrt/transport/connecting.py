"""Connecting to a rank: by a unix socket on this machine, by TLS at the data port of another one."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshrt.errors import AuthenticationError
from meshrt.transport.link import Connection, Link, peer_of
from meshrt.wire.addresses import RankAddress
from meshrt.wire.preface import preface

if TYPE_CHECKING:
    from meshrt.wire.certificate import Certificate
    from meshrt.wire.frames import FrameDecoder

__all__ = ["Connector", "link_of", "secured"]

#: Seconds that a `connect` may wait for a place in the rank's backlog.
_CONNECT_SECONDS = 10


class Connector:
    """Makes the connections of a process. Any thread.

    Args:
        machine: Returns the number of the machine that this process is on, 0 if that is not known yet.
        certificate: Returns that of the program; None: it has one machine.
    """

    def __init__(
        self, machine: Callable[[], int] = lambda: 0, certificate: Callable[[], Certificate | None] = lambda: None
    ) -> None:
        self._machine = machine
        self._certificate = certificate

    def connect(self, address: RankAddress, attempt: int = 0) -> Link:
        """Return a link to a rank. On another machine it is connected later, which the first write waits for.

        Args:
            attempt: How often this rank was tried before: each time at another one of its addresses.
        Raises:
            OSError: The rank does not listen (yet), or this process is short of something.
            AuthenticationError: The socket belongs to another user.
        """
        host = address.host
        if host.ports and host.machine != self._machine():
            return self._elsewhere(host.ports[attempt % len(host.ports)], address.name)
        return _here(address.path)

    def _elsewhere(self, port: tuple[str, int], name: str) -> Link:
        from meshrt.transport.secured import SecureLink, SecureSocket  # start-up: as below

        certificate = self._certificate()
        if certificate is None:
            # It is on its way to this process, before what the root answers next.
            raise ConnectionRefusedError(errno.ECONNREFUSED, "this process has no certificate yet")
        family = socket.AF_INET6 if ":" in port[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            problem = sock.connect_ex(port)
            if problem not in (0, errno.EINPROGRESS):
                raise OSError(problem, os.strerror(problem))
            return SecureLink(SecureSocket(sock, certificate, server=False, preface=preface(name)))
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

    return SecureSocket(sock, certificate, server=True)


def link_of(sock: Connection, decoder: FrameDecoder | None = None) -> Link:
    """Return a link on a connection of this machine, or of another one."""
    if isinstance(sock, socket.socket):
        return Link(sock, decoder)
    from meshrt.transport.secured import SecureLink  # start-up: as above

    return SecureLink(sock, decoder)
