"""Mutual proof of a shared secret, before anything else is read from a connection. Sans-IO.

::

    client -> server   magic (8) | role (1) | nonce (32) | length (1) | endpoint [ newline | versions ]
    server -> client   nonce (32) | HMAC-SHA256(secret, "server" | T)
    client -> server   HMAC-SHA256(secret, "client" | T)
    server -> client   1: it is let in;  or  2 | length (2) | text: why it is not, although it has the secret

    T = magic, role, endpoint as dialled (with the versions), both nonces, each with its length

The last sixteen bytes of a nonce identify its side (`Identity`): a peer that shares memory with it must name the
process and its store. The kernel tells the server which process has connected, if it is on this machine, but tells the
client only which process has made the listening socket, which is the host agent.

The server proves first, so a client never talks to a foreign server; the endpoint is inside the proof, so a proof
cannot be relayed to another endpoint. At most 256 bytes are taken from an unproved peer. It has `HELLO_SECONDS` for its
hello and `HANDSHAKE_SECONDS` in all, from when its connection was accepted, and the listening side keeps at most
`UNPROVED_MAX` of them: beyond, the oldest is dropped. On another machine, preface (`meshrt.wire.preface`) and TLS are
part of that time. So a slow client may be dropped although it has sent its proof. It sends nothing else before it knows
that it was let in, and may dial again if it was not.

A peer of another version must understand both that it is refused, and why. So its versions
(`meshrt.wire.versions`) are said here, before any message whose form may differ.

States: client ``hello -> proof -> let in -> done | refused``, server ``hello -> proof -> done | refused``; any other
byte is `AuthenticationError`.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable
from typing import NamedTuple

from meshrt.errors import AuthenticationError

__all__ = [
    "ANSWERED_SECONDS",
    "HANDSHAKE_SECONDS",
    "HELLO_SECONDS",
    "MAGIC",
    "ROLE_AGENT",
    "ROLE_CODE",
    "ROLE_DATA",
    "ROLE_STORE",
    "ROLE_TOOL",
    "UNKNOWN_PEER",
    "UNPROVED_MAX",
    "ClientHandshake",
    "Identity",
    "Secret",
    "ServerHandshake",
]


class Secret(bytes):
    """Bytes that no message, log or traceback shows, whatever they are part of."""

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__


#: From when it was accepted. Half a second from end to end and a packet that is lost take less than two.
HELLO_SECONDS = 3.0
HANDSHAKE_SECONDS = 5.0
#: From the answer to its hello, if that came late because this side was busy: it could not prove itself before.
ANSWERED_SECONDS = HANDSHAKE_SECONDS - HELLO_SECONDS
UNPROVED_MAX = 64

MAGIC = b"meshrt\x00\x02"
#: A caller that talks to an actor.
ROLE_DATA = 1
#: A terminal: debugger, ``meshrt ps`` ...
ROLE_TOOL = 2
#: A process that shares memory with others of its host.
ROLE_STORE = 3
#: A host agent on another machine than the root.
ROLE_AGENT = 4
#: A process of a rank that asks its agent for code of the script.
ROLE_CODE = 5

_NONCE = 32
_IDENTITY = 16
_PROOF = 32
_LET_IN = b"\x01"
_REFUSED = b"\x02"
_TEXT_HEAD = len(_REFUSED) + 2
#: Bytes of an endpoint, with the versions.
_ENDPOINT_MAX = 200
_HEAD = len(MAGIC) + 1 + _NONCE + 1


class Identity(NamedTuple):
    """The identity of a side, as it states it. 0: not known, or not needed there.

    Attributes:
        machine: See `meshrt.store.machine`: processes of different ones share no memory.
        agent_pid: The host agent whose store knows what it holds.
    """

    machine: int
    agent_pid: int
    pid: int

    @property
    def number(self) -> int:
        """A number of the process among those of all machines, below 2**53; its lowest 22 bits are the pid."""
        return (self.machine % (1 << 31)) << 22 | self.pid

    @classmethod
    def unpack(cls, data: bytes) -> Identity:
        """Inverse of `pack`."""
        return cls(*(int.from_bytes(data[start:end], "big") for start, end in ((0, 8), (8, 12), (12, 16))))

    def pack(self) -> bytes:
        """Return it as 16 bytes."""
        return b"".join(part.to_bytes(size, "big") for part, size in zip(self, (8, 4, 4), strict=True))


UNKNOWN_PEER = Identity(0, 0, 0)


def _transcript(role: int, endpoint: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    parts = (MAGIC, bytes([role]), endpoint, client_nonce, server_nonce)
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def _nonce(identity: Identity | None) -> bytes:
    return secrets.token_bytes(_NONCE - _IDENTITY) + (identity or Identity(0, 0, os.getpid())).pack()


def _proof(secret: bytes, side: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, side + transcript, "sha256")


class ClientHandshake:
    """The dialling side. Write `hello`, feed `receive_data`, write what it returns."""

    def __init__(
        self, secret: bytes, role: int, endpoint: str, identity: Identity | None = None, versions: str = ""
    ) -> None:
        self._secret = secret
        self._role = role
        self._endpoint = (f"{endpoint}\n{versions}" if versions else endpoint).encode()
        if len(self._endpoint) > _ENDPOINT_MAX:
            raise AuthenticationError(f"the endpoint name {endpoint!r} is longer than {_ENDPOINT_MAX} bytes")
        self._nonce = _nonce(identity)
        self._buffer = b""
        #: The server has proved itself.
        self.proved: bool = False
        self.done: bool = False
        #: Why the server does not let it in.
        self.refused: str = ""
        self.leftover: bytes = b""
        #: The server, once it has proved itself.
        self.server: Identity = UNKNOWN_PEER

    def hello(self) -> bytes:
        """Return the first bytes to send."""
        return b"".join((MAGIC, bytes([self._role]), self._nonce, bytes([len(self._endpoint)]), self._endpoint))

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes of the server and return what to send back (maybe nothing).

        Raises:
            AuthenticationError: The server does not hold the secret, or says something else than that it lets in.
        """
        self._buffer += data
        if self.proved:
            self._enter()
            return b""
        if len(self._buffer) < _NONCE + _PROOF:
            return b""
        server_nonce = self._buffer[:_NONCE]
        transcript = _transcript(self._role, self._endpoint, self._nonce, server_nonce)
        if not hmac.compare_digest(self._buffer[_NONCE : _NONCE + _PROOF], _proof(self._secret, b"server", transcript)):
            raise AuthenticationError("the peer does not hold the secret of this program")
        self._buffer = self._buffer[_NONCE + _PROOF :]
        self.server = Identity.unpack(server_nonce[-_IDENTITY:])
        self.proved = True
        self._enter()
        return _proof(self._secret, b"client", transcript)

    def _enter(self) -> None:
        if self._buffer.startswith(_REFUSED):
            size = _TEXT_HEAD + int.from_bytes(self._buffer[1:_TEXT_HEAD], "big")
            if len(self._buffer) >= max(size, _TEXT_HEAD):
                self.refused = self._buffer[_TEXT_HEAD:size].decode(errors="replace") or "no reason is given"
            return
        if self._buffer and not self._buffer.startswith(_LET_IN):
            raise AuthenticationError("the peer does not speak this protocol (or another version of it)")
        if self._buffer:
            self.leftover = self._buffer[len(_LET_IN) :]
            self.done = True


class ServerHandshake:
    """The accepting side. Feed `receive_data`, write what it returns, until `done` or `refused`.

    Args:
        refuses: Given the endpoint and the versions of a client that has proved itself: why it is not let in, or "".
    """

    def __init__(
        self,
        secret: bytes,
        role: int,
        identity: Identity | None = None,
        refuses: Callable[[str, str], str] = lambda _endpoint, _versions: "",
    ) -> None:
        self._identity = identity
        self._refuses = refuses
        #: The client, once it has proved itself.
        self.client = UNKNOWN_PEER
        self._secret = secret
        self._role = role
        self._buffer = b""
        self._transcript = b""
        self.endpoint = ""
        #: What the client has said of its versions.
        self.versions = ""
        self.done = False
        self.refused = ""
        self.leftover = b""

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes of the client and return what to send back (maybe nothing).

        Raises:
            AuthenticationError: Wrong magic, role or proof, or more bytes than a hello may have.
        """
        self._buffer += data
        if not self._transcript:
            return self._hello()
        if len(self._buffer) >= _PROOF:
            if not hmac.compare_digest(self._buffer[:_PROOF], _proof(self._secret, b"client", self._transcript)):
                raise AuthenticationError("the peer does not hold the secret of this program")
            self.leftover = self._buffer[_PROOF:]
            self.refused = self._refuses(self.endpoint, self.versions)
            if self.refused:
                text = self.refused.encode()[: (1 << 16) - 1]
                return _REFUSED + len(text).to_bytes(2, "big") + text
            self.done = True
            return _LET_IN
        return b""

    def _hello(self) -> bytes:
        buffer = self._buffer
        if not buffer.startswith(MAGIC[: len(buffer)]):
            raise AuthenticationError("the peer does not speak this protocol (or another version of it)")
        if len(buffer) < _HEAD:
            return b""
        size = _HEAD + buffer[_HEAD - 1]
        if len(buffer) < size:
            return b""
        role = buffer[len(MAGIC)]
        if role != self._role or len(buffer) > size:
            raise AuthenticationError("the peer asks for another role, or has sent data before its proof")
        endpoint = buffer[_HEAD:size]
        nonce = buffer[len(MAGIC) + 1 : len(MAGIC) + 1 + _NONCE]
        server_nonce = _nonce(self._identity)
        self.client = Identity.unpack(nonce[-_IDENTITY:])
        self._transcript = _transcript(role, endpoint, nonce, server_nonce)
        self._buffer = b""
        self.endpoint, _, self.versions = endpoint.decode(errors="replace").partition("\n")
        return server_nonce + _proof(self._secret, b"server", self._transcript)
