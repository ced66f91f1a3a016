"""How an agent joins a program on another machine: it dials the root, by an invitation that it has been given."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Mapping

from meshrt.errors import ProtocolError, UsageError
from meshrt.transport.link import Link
from meshrt.transport.liveness import AGENT_SECONDS, end_when_silent
from meshrt.transport.racing import begin_to_connect, described, race
from meshrt.transport.secured import SecureLink, SecureSocket
from meshrt.wire.addresses import Port
from meshrt.wire.certificate import Certificate
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_AGENT, ClientHandshake
from meshrt.wire.preface import preface
from meshrt.wire.tree import INVITED, Invited
from meshrt.wire.versions import own_versions

__all__ = ["check", "invited_by", "join"]

#: Seconds for one address of the root to answer, and for its proof.
_SECONDS = 10.0


def join(text: bytes, who: str = "") -> tuple[Link, bytes]:
    """Connect to the root.

    Args:
        text: The invitation (`meshrt.mesh.invitations`).
        who: What an agent says of itself that joins by one for all; ASCII.
    Returns:
        The link, and what the root has sent behind the proof.
    Raises:
        UsageError: The text is not a valid invitation; or the root does not take this process, and says why.
        ConnectionError: None of the root's addresses answers; the text says what each has answered.
    """
    invited = invited_by(text)
    problems: dict[Port, str] = {}
    left = [(host, port) for host, port in invited.ports]
    while left:
        knock, more = race(left, lambda address: _Knock(address, invited, who), _SECONDS)
        problems |= more
        if knock is None:
            break
        try:
            return knock.enter(_SECONDS)
        except (OSError, ProtocolError) as error:
            knock.close()
            problems[knock.address] = str(error)
            left = left[left.index(knock.address) + 1 :]
        except UsageError:
            knock.close()
            raise
    raise _unreachable(problems)


def check(text: bytes) -> None:
    """Raise ConnectionError, unless the root answers that has written the invitation; the agent does not join."""
    invited = invited_by(text)
    ports = [(host, port) for host, port in invited.ports]
    knock, problems = race(ports, lambda address: _Knock(address, invited, ""), _SECONDS)
    if knock is None:
        raise _unreachable(problems)
    knock.close()


def invited_by(text: bytes) -> Invited:
    """Return the invitation. Raises UsageError: the text is none."""
    try:
        (frame,) = control_decoder().receive_data(text)
        return INVITED.decode(frame.payload)
    except (ValueError, ProtocolError) as error:
        raise UsageError(f"the input is not a valid invitation to a program of meshrt: {error}") from None


def _unreachable(problems: Mapping[Port, str]) -> ConnectionError:
    return ConnectionError(f"the script cannot be reached at any of its addresses: {described(problems)}")


class _Knock:
    """An attempt at one address of the root. The root takes the first that proves itself, so it is not this one yet."""

    def __init__(self, address: Port, invited: Invited, who: str) -> None:
        self.address = address
        tcp = begin_to_connect(address)
        end_when_silent(tcp, AGENT_SECONDS)
        self._sock = SecureSocket(tcp, Certificate(*invited.certificate), server=False, preface=preface(invited.name))
        endpoint = "/".join(filter(None, (invited.name, who)))
        self._handshake = ClientHandshake(invited.secret, ROLE_AGENT, endpoint, versions=own_versions().text)
        self._connected = False
        self._proof = b""

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def events(self) -> int:
        return select.POLLIN if self._connected else select.POLLOUT

    def go_on(self) -> bool:
        if not self._connected:
            self._sock.send(self._handshake.hello())
            self._connected = True
        while not self._proof:
            try:
                self._proof = self._handshake.receive_data(self._read())
            except BlockingIOError:
                return False
        return True

    def enter(self, seconds: float) -> tuple[Link, bytes]:
        """Prove this side, too; returns the link, and what came behind the answer.

        Raises:
            OSError, ProtocolError: It does not answer.
            UsageError: It does not take this process, and says why.
        """
        deadline = time.monotonic() + seconds
        self._sock.send(self._proof)
        while not self._handshake.done and not self._handshake.refused:
            left = deadline - time.monotonic()
            if not self._sock.pending and not select.select([self._sock], [], [], max(0.0, left))[0]:
                raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
            with contextlib.suppress(BlockingIOError):
                self._handshake.receive_data(self._read())
        if self._handshake.refused:
            raise UsageError(self._handshake.refused)
        return SecureLink(self._sock, control_decoder()), self._handshake.leftover

    def _read(self) -> bytes:
        data = self._sock.recv(4096)
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return data

    def close(self) -> None:
        self._sock.close()
