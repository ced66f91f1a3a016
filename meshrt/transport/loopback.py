"""Which user has the other end of a TCP connection on the loopback interface, as the kernel knows it.

Any user of the machine can connect to 127.0.0.1, and TCP has no SO_PEERCRED. ``/proc/net/tcp`` and ``tcp6`` list both
ends of such a connection, each with the user id of the process that has made its socket. (A client may dial an IPv4
address through an IPv6 socket: its end is in ``tcp6``.) A socket that its process has closed is listed with user id 0
and inode 0: it belongs to no user, so not to root.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Connected", "LoopbackTable"]

Address = tuple[str, int]
_FILES = ("/proc/net/tcp", "/proc/net/tcp6")
#: Of ``::ffff:0:0/96``, in which IPv6 sockets see IPv4 addresses.
_MAPPED = bytes(10) + b"\xff\xff"
_UNSPECIFIED = socket.inet_ntoa(bytes(4))
#: Columns of a row.
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9
_CHUNK = 1 << 20


class Connected(NamedTuple):
    """A connection as this process sees it: IPv4 addresses and ports."""

    local: Address
    peer: Address

    @classmethod
    def of(cls, sock: socket.socket) -> Connected:
        """Return that of a connected socket. Raises OSError: it is not connected any more."""
        local, peer = sock.getsockname(), sock.getpeername()
        return cls((local[0], local[1]), (peer[0], peer[1]))


class LoopbackTable:
    """The kernel's lists of TCP sockets. Any thread. They are kept open: a look needs no free descriptor.

    Raises:
        OSError: There is no /proc.
    """

    def __init__(self) -> None:
        self._files = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in _FILES if os.path.exists(path)]
        if not self._files:
            raise FileNotFoundError(f"{_FILES[0]} does not exist: the user of a TCP connection cannot be found")

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.pop())

    def owners(self, connections: Sequence[Connected]) -> list[int | None]:
        """Return the user id of the peer of each connection; None: no living process has its end.

        One look at the lists, however many connections there are. It takes the longer the more sockets the machine has,
        of whatever user: 0.1 s and more with tens of thousands. Raises OSError: the lists cannot be read.
        """
        listed = self._read()
        peers = {local: _peers(listed, local) for local in {connection.local for connection in connections}}
        return [_owner(peers[connection.local], connection.peer) for connection in connections]

    def listener(self, port: int) -> int | None:
        """Return the user id of the process that listens at a port of 127.0.0.1, or at that of all interfaces."""
        listed = self._read()
        for host in ("127.0.0.1", _UNSPECIFIED):
            for local, remote in zip(_keys((host, port)), _keys((_UNSPECIFIED, 0)), strict=True):
                found = _find(listed, b" %b %b 0A " % (local, remote))
                if found is not None:
                    return found
        return None

    def _read(self) -> list[bytes]:
        listed = []
        for descriptor in self._files:
            parts, at = [], 0
            while part := os.pread(descriptor, _CHUNK, at):
                parts.append(part)
                at += len(part)
            listed.append(b"".join(parts))
        return listed


def _peers(listed: Sequence[bytes], local: Address) -> list[dict[bytes, int | None]]:
    """Return, for each list, the user ids of the sockets that are connected to an address, by what it calls theirs."""
    found: list[dict[bytes, int | None]] = []
    for text, key in zip(listed, _keys(local), strict=False):  # a machine without IPv6 has one list
        peers: dict[bytes, int | None] = {}
        sought, at = b" %b " % key, 0
        while (at := text.find(sought, at)) >= 0:
            columns, at = _row(text, at)
            if columns[_REMOTE] == key:
                peers[columns[_LOCAL]] = _user(columns)
        found.append(peers)
    return found


def _owner(peers: Sequence[dict[bytes, int | None]], peer: Address) -> int | None:
    return next((each[key] for each, key in zip(peers, _keys(peer), strict=False) if key in each), None)


def _row(text: bytes, at: int) -> tuple[list[bytes], int]:
    """Return the columns of the row at ``at``, and where it ends."""
    end = text.find(b"\n", at)
    return text[text.rfind(b"\n", 0, at) + 1 : end].split(), end


def _user(columns: Sequence[bytes]) -> int | None:
    return int(columns[_UID]) if int(columns[_INODE]) else None


def _find(listed: Sequence[bytes], key: bytes) -> int | None:
    """Return the user id of the row with ``key``; None: there is none, or its socket has no user."""
    for text in listed:
        at = text.find(key)
        if at >= 0:
            return _user(_row(text, at)[0])
    return None


def _keys(address: Address) -> tuple[bytes, bytes]:
    """Return an IPv4 address as the two files show it: the words of the address in the byte order of this machine."""
    packed = socket.inet_aton(address[0])
    # An unspecified address is that of IPv6, not a mapped one.
    mapped = (_MAPPED if any(packed) else bytes(12)) + packed
    return _shown(packed, address[1]), _shown(mapped, address[1])


def _shown(packed: bytes, port: int) -> bytes:
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return b"".join(b"%08X" % word for word in words) + b":%04X" % port
