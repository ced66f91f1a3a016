"""Mutual proof of a shared secret, before anything else is read from a connection. Sans-IO.

::

    client -> server   magic (8) | role (1) | nonce (32) | length (1) | endpoint
    server -> client   nonce (32) | HMAC-SHA256(secret, "server" | T)
    client -> server   HMAC-SHA256(secret, "client" | T)

    T = magic, role, endpoint as dialled, both nonces, each with its length

The last four bytes of the server's nonce are its pid: who shares memory with it has to say with whom. The kernel tells
the server who has connected, but the client only who has made the listening socket, which is the host agent.

The server proves first, so a client never speaks to a stranger; the endpoint is inside the proof, so a proof cannot be
relayed to another endpoint. At most 256 bytes are taken from a peer that has proved nothing; who listens gives it
`HANDSHAKE_SECONDS`, and keeps `UNPROVED_MAX` of them at most: beyond, the oldest is dropped.

States: client ``hello -> proof -> done``, server ``hello -> proof -> done``; any other byte is `AuthenticationError`.
"""

from __future__ import annotations

import hmac
import os
import secrets

from meshrt.errors import AuthenticationError

__all__ = [
    "HANDSHAKE_SECONDS",
    "MAGIC",
    "ROLE_DATA",
    "ROLE_STORE",
    "ROLE_TOOL",
    "UNPROVED_MAX",
    "ClientHandshake",
    "ServerHandshake",
]

HANDSHAKE_SECONDS = 2.0
UNPROVED_MAX = 64

MAGIC = b"meshrt\x00\x01"
#: A caller that talks to an actor.
ROLE_DATA = 1
#: A terminal: debugger, ``meshrt ps`` ...
ROLE_TOOL = 2
#: A process that shares memory with others of its host.
ROLE_STORE = 3

_NONCE = 32
_PID = 4
_PROOF = 32
_HEAD = len(MAGIC) + 1 + _NONCE + 1


def _transcript(role: int, endpoint: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    parts = (MAGIC, bytes([role]), endpoint, client_nonce, server_nonce)
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def _proof(secret: bytes, side: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, side + transcript, "sha256")


class ClientHandshake:
    """The dialling side. Write `hello`, feed `receive_data`, write what it returns."""

    __slots__ = ("_buffer", "_endpoint", "_nonce", "_role", "_secret", "done", "leftover", "server_pid")

    def __init__(self, secret: bytes, role: int, endpoint: str) -> None:
        self._secret = secret
        self._role = role
        self._endpoint = endpoint.encode()
        if len(self._endpoint) > 200:
            raise AuthenticationError(f"the endpoint name {endpoint!r} is longer than 200 bytes")
        self._nonce = secrets.token_bytes(_NONCE)
        self._buffer = b""
        self.done = False
        self.leftover = b""
        #: Who serves, once it has proved itself.
        self.server_pid = 0

    def hello(self) -> bytes:
        """Return the first bytes to send."""
        return b"".join((MAGIC, bytes([self._role]), self._nonce, bytes([len(self._endpoint)]), self._endpoint))

    def receive_data(self, data: bytes) -> bytes:
        """Take bytes of the server and return what to send back (maybe nothing).

        Raises:
            AuthenticationError: The server does not hold the secret.
        """
        self._buffer += data
        if len(self._buffer) < _NONCE + _PROOF:
            return b""
        server_nonce = self._buffer[:_NONCE]
        transcript = _transcript(self._role, self._endpoint, self._nonce, server_nonce)
        if not hmac.compare_digest(self._buffer[_NONCE : _NONCE + _PROOF], _proof(self._secret, b"server", transcript)):
            raise AuthenticationError("the peer does not hold the secret of this program")
        self.leftover = self._buffer[_NONCE + _PROOF :]
        self.server_pid = int.from_bytes(server_nonce[-_PID:], "big")
        self.done = True
        return _proof(self._secret, b"client", transcript)


class ServerHandshake:
    """The accepting side. Feed `receive_data`, write what it returns, until `done`."""

    __slots__ = ("_buffer", "_role", "_secret", "_transcript", "done", "endpoint", "leftover")

    def __init__(self, secret: bytes, role: int) -> None:
        self._secret = secret
        self._role = role
        self._buffer = b""
        self._transcript = b""
        self.endpoint = ""
        self.done = False
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
            self.done = True
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
            raise AuthenticationError("the peer asks for another role, or speaks before it has proved itself")
        endpoint = buffer[_HEAD:size]
        nonce = buffer[len(MAGIC) + 1 : len(MAGIC) + 1 + _NONCE]
        server_nonce = secrets.token_bytes(_NONCE - _PID) + os.getpid().to_bytes(_PID, "big")
        self._transcript = _transcript(role, endpoint, nonce, server_nonce)
        self._buffer = b""
        self.endpoint = endpoint.decode(errors="replace")
        return server_nonce + _proof(self._secret, b"server", self._transcript)
