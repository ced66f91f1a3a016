"""The first bytes of a connection to a data port, in clear: which process of the host is asked for. Sans-IO.

::

    preface := magic (8) | length (1) | name

Names:

* ``agent/MACHINE`` and ``relay/TOKEN``, at the root's port; ``rank/MESH/RANK`` and ``store``, at that of a host. A name
  proves nothing: TLS follows, between the two processes themselves, and the proof of the secret inside it.
* ``host/MACHINE/PID/NONCE``: whether this is the port of that host. The answer is `host_proof`, and the end.
"""

from __future__ import annotations

import hmac

from meshrt.errors import ProtocolError

__all__ = ["HOST_PROOF", "PREFACE_MAX", "PrefaceReader", "host_name", "host_proof", "preface"]

_MAGIC = b"meshrt\x00\x81"
_HEAD = len(_MAGIC) + 1
#: Bytes of a preface, at most.
PREFACE_MAX = 128
#: Bytes of a `host_proof`.
HOST_PROOF = 32


def preface(name: str) -> bytes:
    """Return the bytes that ask for ``name``. Raises ProtocolError: it is empty, or too long."""
    data = name.encode()
    if not data or _HEAD + len(data) > PREFACE_MAX:
        raise ProtocolError(f"the name {name!r} is empty, or longer than {PREFACE_MAX - _HEAD} bytes")
    return b"".join((_MAGIC, bytes([len(data)]), data))


def host_name(machine: int, agent_pid: int) -> str:
    """Return what the name begins with that asks whether this is the port of a host; a nonce follows."""
    return f"host/{machine:x}/{agent_pid}/"


def host_proof(secret: bytes, name: str) -> bytes:
    """Return what shows that a port is that of the host in ``name``, which has a nonce of the side that asks."""
    return hmac.digest(secret, b"host" + name.encode(), "sha256")


class PrefaceReader:
    """Reads a preface, and not a byte more: what follows belongs to the process that is asked for.

    Attributes:
        missing: How many bytes to read next; 0: it is complete.
        name: Of the process, once it is complete.
    """

    def __init__(self) -> None:
        self.missing = _HEAD
        self.name = ""
        self._data = b""

    def receive_data(self, data: bytes) -> None:
        """Take up to `missing` bytes. Raises ProtocolError: they do not belong to a preface."""
        self._data += data
        if not self._data.startswith(_MAGIC[: len(self._data)]):
            raise ProtocolError("the peer does not speak this protocol (or another version of it)")
        size = _HEAD
        if len(self._data) >= _HEAD:
            size += self._data[_HEAD - 1]
            if not _HEAD < size <= PREFACE_MAX:
                raise ProtocolError(f"a preface of {size} bytes; expected {_HEAD + 1} to {PREFACE_MAX}")
        self.missing = size - len(self._data)
        if not self.missing:
            try:
                self.name = self._data[_HEAD:].decode("ascii")
            except UnicodeDecodeError:
                raise ProtocolError("the name that a peer asks for is not ASCII") from None
