"""How a store is dialled: a process waits until it is let in, the store of another host has a selector that waits."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from meshrt.errors import ProtocolError, ReferenceLost
from meshrt.store.messages import TO_PROCESS, ToProcess
from meshrt.store.protocol import DescriptorStream, Incoming
from meshrt.transport.link import Connection, same_user
from meshrt.transport.liveness import ROOT_SECONDS, end_when_silent
from meshrt.transport.racing import begin_to_connect
from meshrt.wire.addresses import Way
from meshrt.wire.handshake import ROLE_STORE, ClientHandshake, Identity
from meshrt.wire.preface import preface

if TYPE_CHECKING:
    from meshrt.wire.certificate import Certificate

__all__ = ["begin_elsewhere", "dial", "knock", "wait_for"]

#: Longest delay of Ctrl-C by a thread that waits here, seconds.
_PAUSE = 0.1


def knock(path: str, secret: bytes, own: Identity, patience: float) -> tuple[socket.socket, ClientHandshake]:
    """Connect to a store of this machine, and begin to prove what this side is.

    Args:
        path: Where it listens (`meshrt.store.protocol.store_path`).
        secret: What both sides prove.
        own: The identity of this side.
        patience: Seconds that each step may take; 0.0: nothing waits, neither here nor later.
    Raises:
        FileNotFoundError, ConnectionError: No process listens there any more.
        OSError: There is no descriptor, or the store is busy.
        ProtocolError: It belongs to another user.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(patience)
        sock.connect(path)
        if not same_user(sock):
            raise ProtocolError(f"{path} is served by another user")
        handshake = ClientHandshake(secret, ROLE_STORE, "store", own)
        sock.sendall(handshake.hello())
    except BaseException:
        sock.close()
        raise
    return sock, handshake


def begin_elsewhere(way: Way, certificate: Certificate) -> Connection:
    """Begin to connect to the store of a host: by TLS, without a wait.

    Args:
        way: To the data port of the host, or through the root.
    Raises:
        OSError: There is no descriptor, or no way there.
    """
    from meshrt.transport.secured import SecureSocket  # start-up: `ssl`, for programs on several machines

    sock = begin_to_connect(way.port)
    try:
        end_when_silent(sock, ROOT_SECONDS)
        return SecureSocket(sock, certificate, server=False, preface=preface(way.name))
    except BaseException:
        sock.close()
        raise


def dial(
    path: str, secret: bytes, own: Identity, patience: float, pause: Callable[[], None]
) -> tuple[DescriptorStream, list[Incoming[ToProcess]]]:
    """Connect to a store, and wait until it has let this process in.

    Args:
        path, secret, own: As in `knock`.
        patience: Seconds without a message of it.
        pause: Called about ten times a second meanwhile; ends this by an exception.
    Returns:
        The connection, which does not block, and the messages that have come already.
    Raises:
        TimeoutError: It has sent nothing.
        ReferenceLost: It has closed the connection.
        FileNotFoundError, ConnectionError, OSError, ProtocolError: As `knock`; or its data is invalid.
    """
    sock, handshake = knock(path, secret, own, patience)
    try:
        begun = time.monotonic()
        while not handshake.done:
            wait_for(sock, select.POLLIN, begun + patience, pause)
            data = sock.recv(256)
            if not data:
                raise ReferenceLost("the store of this host has refused this process")
            sock.sendall(handshake.receive_data(data))
        stream = DescriptorStream(sock)
        messages = stream.feed(handshake.leftover, TO_PROCESS)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return stream, messages


def wait_for(sock: Connection, events: int, deadline: float, pause: Callable[[], None]) -> None:
    """Wait until a socket is ready.

    Args:
        events: As of `select.poll`.
        deadline: Until when (monotonic).
        pause: As in `dial`.
    Raises:
        TimeoutError: It was not.
    """
    poll = select.poll()
    poll.register(sock, events)
    while not poll.poll(max(0.0, min(_PAUSE, deadline - time.monotonic())) * 1000):
        pause()
        if deadline <= time.monotonic():
            raise TimeoutError
