"""How long a connection to another machine lives without a sign of that machine.

The kernel asks, and that of the peer answers: a process that is stopped, or busy, is not taken for a lost machine.
"""

from __future__ import annotations

import socket

__all__ = ["AGENT_SECONDS", "FENCE_SECONDS", "ROOT_SECONDS", "end_when_silent"]

#: Seconds until the root takes an agent's machine for lost.
ROOT_SECONDS = 10
#: Seconds until an agent takes the root's machine for lost, and ends its ranks: before the root may start others in
#: their place.
AGENT_SECONDS = 7
#: Seconds from the end of a connection, for another reason than silence, until the agent has ended its ranks.
FENCE_SECONDS = AGENT_SECONDS + 1


def end_when_silent(sock: socket.socket, seconds: int) -> None:
    """Have the kernel end a TCP connection when the machine at its other end says nothing for so many seconds."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, seconds)
    # Where something was sent and is not acknowledged, the kernel does not ask, and would try for 15 minutes.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, seconds * 1000)
