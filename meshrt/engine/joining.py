"""How an agent joins a program on another machine: it dials the root, by an invitation that it has been given."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Callable
from typing import TypeVar

from meshrt.errors import AuthenticationError, ProtocolError, UsageError
from meshrt.transport.link import Link
from meshrt.transport.liveness import AGENT_SECONDS, end_when_silent
from meshrt.transport.secured import SecureLink, SecureSocket
from meshrt.wire.addresses import Port
from meshrt.wire.certificate import Certificate
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_AGENT, ClientHandshake
from meshrt.wire.preface import preface
from meshrt.wire.tree import INVITED, Invited

__all__ = ["check", "invited_by", "join"]

T = TypeVar("T")

#: Seconds for one address of the root to answer, and for the proofs.
_SECONDS = 5.0


def join(text: bytes, who: str = "") -> tuple[Link, bytes]:
    """Connect to the root.

    Args:
        text: The invitation (`meshrt.mesh.invitations`).
        who: What an agent says of itself that joins by one for all; ASCII.
    Returns:
        The link, and what the root has sent behind the proof.
    Raises:
        UsageError: The text is no invitation.
        ConnectionError: None of the root's addresses answers; the text says what each has answered.
    """
    invited = invited_by(text)
    return _first(invited, lambda address: _knock(address, invited, who))


def check(text: bytes) -> None:
    """Raise ConnectionError, unless the root answers that has written the invitation; the agent does not join."""
    invited = invited_by(text)
    _first(invited, lambda address: _look(address, invited))


def invited_by(text: bytes) -> Invited:
    """Return the invitation. Raises UsageError: the text is none."""
    try:
        (frame,) = control_decoder().receive_data(text)
        return INVITED.decode(frame.payload)
    except (ValueError, ProtocolError) as error:
        raise UsageError(f"what was read is no invitation to a program of meshrt: {error}") from None


def _first(invited: Invited, dial: Callable[[Port], T]) -> T:
    """Dial one address after the other; returns what the first one that answers gives."""
    problems = []
    for address in invited.ports:
        try:
            return dial(address)
        except (OSError, AuthenticationError) as error:
            problems.append(f"{address[0]} port {address[1]}: {error}")
    raise ConnectionError("the script cannot be reached at any of its addresses: " + "; ".join(problems))


def _knock(address: Port, invited: Invited, who: str) -> tuple[Link, bytes]:
    handshake = ClientHandshake(invited.secret, ROLE_AGENT, "/".join(filter(None, (invited.name, who))))
    sock = _dialled(address, invited, handshake, lambda: handshake.done)
    return SecureLink(sock, control_decoder()), handshake.leftover


def _look(address: Port, invited: Invited) -> None:
    handshake = ClientHandshake(invited.secret, ROLE_AGENT, invited.name)
    _dialled(address, invited, handshake, lambda: handshake.proved).close()


def _dialled(address: Port, invited: Invited, handshake: ClientHandshake, enough: Callable[[], bool]) -> SecureSocket:
    tcp = socket.create_connection(address, timeout=_SECONDS)
    end_when_silent(tcp, AGENT_SECONDS)
    sock = SecureSocket(tcp, Certificate(*invited.certificate), server=False, preface=preface(invited.name))
    try:
        deadline = time.monotonic() + _SECONDS
        sock.send(handshake.hello())
        while not enough():
            left = deadline - time.monotonic()
            if not sock.pending and not select.select([sock], [], [], max(0.0, left))[0]:
                raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
            try:
                data = sock.recv(4096)
            except BlockingIOError:
                continue
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            proof = handshake.receive_data(data)
            if proof and not enough():
                sock.send(proof)
        return sock
    except BaseException:
        sock.close()
        raise
