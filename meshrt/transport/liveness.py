"""How long a connection to another machine lives without a sign of that machine.

The kernel of the peer gives the signs: it acknowledges what comes. So a process that is stopped, or busy, is not taken
for a lost machine. Two means, as each of them sees one half:

* keep-alive: the kernel asks while nothing is under way, and ends the connection when there is no answer.
* `Silence`: while something is under way the kernel does not ask, and would send it again for 15 minutes.

(TCP_USER_TIMEOUT is neither: it also ends a connection to a process that does not read, though its kernel answers.)
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from meshrt.transport.link import Connection

__all__ = [
    "AGENT_SECONDS",
    "FENCE_SECONDS",
    "LOOK_SECONDS",
    "ROOT_SECONDS",
    "VERDICT_SECONDS",
    "Silence",
    "end_when_silent",
    "unheard",
]

#: Seconds until the root takes an agent's machine for lost.
ROOT_SECONDS = 10
#: Seconds until an agent takes the root's machine for lost, and ends its ranks: before the root may start others in
#: their place.
AGENT_SECONDS = 7
#: Seconds from the end of a connection, for another reason than silence, until the agent has ended its ranks.
FENCE_SECONDS = AGENT_SECONDS + 2
#: Seconds within which a process is told that a machine is lost, if it is: its own suspicions wait so long.
VERDICT_SECONDS = ROOT_SECONDS + 3
#: Seconds between two looks of root and agent at their connection.
LOOK_SECONDS = 0.5


def end_when_silent(sock: socket.socket, seconds: int) -> None:
    """Have the kernel end a TCP connection that is at rest when the other machine says nothing for so many seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, seconds)


class Silence:
    """Whether a TCP connection waits for an acknowledgement for too long. One thread, which looks at intervals.

    Looks are counted, not seconds: a process that was stopped, with the time running on, begins to wait anew.

    Args:
        seconds: How long it may wait.
        interval: Seconds between two looks.
    """

    def __init__(self, seconds: float, interval: float) -> None:
        self._most = round(seconds / interval)
        self._looks = 0
        self._acknowledged = 0

    def look(self, sock: Connection) -> bool:
        """Look once; returns whether it has waited too long."""
        info = _info(sock)
        if info is None:
            return False
        # Nothing is under way where the peer does not read: what it has room for it has acknowledged. If it has less
        # room than it has said, it answers all the same each time that something is sent again.
        waits = info.under_way > 0 and info.acknowledged == self._acknowledged and info.sent_ms < info.ack_ms
        self._acknowledged = info.acknowledged
        self._looks = self._looks + 1 if waits else 0
        return self._looks > self._most


def unheard(sock: Connection) -> float | None:
    """Return for how many seconds nothing has come on a TCP connection; None: it is none, or is closed."""
    info = _info(sock)
    return None if info is None else min(info.data_ms, info.ack_ms) / 1000


class _Info(NamedTuple):
    """Part of `struct tcp_info` of the kernel."""

    #: Segments that are not acknowledged.
    under_way: int
    #: Milliseconds since data was sent, since data has come, and since an acknowledgement has come.
    sent_ms: int
    data_ms: int
    ack_ms: int
    #: Bytes, in all.
    acknowledged: int


#: Where they are in it.
_LAYOUT = struct.Struct("24x I 16x I 4x I I 60x Q")


def _info(sock: Connection) -> _Info | None:
    try:
        data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAYOUT.size)
        return _Info(*_LAYOUT.unpack(data))
    except (OSError, struct.error):
        return None
