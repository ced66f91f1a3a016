"""Whose connections are accepted. The kernel is asked before a byte is read, and no byte is sent to a refused peer.

On a unix socket the kernel tells at once. On the loopback interface its list of sockets does. A look takes the longer
the more sockets the machine has, and anybody may connect: connections that come together are looked up together, one
look at a time, beside the sessions that there are.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Protocol

from meshrt.transport.link import same_user
from meshrt.transport.loopback import Connected, LoopbackTable

__all__ = ["Admission", "LoopbackAdmission", "UnixAdmission"]

#: Looks at the list of sockets for one connection: rows may move while it is read.
_LOOKS = 3

#: Called with the reason to refuse a peer; "" to accept it.
Answer = Callable[[str], None]


class Admission(Protocol):
    """Decides whether a peer may connect."""

    def ask(self, sock: socket.socket, answer: Answer) -> None:
        """Look up the user of a peer. ``answer`` is called once, now or later on the loop."""


class UnixAdmission:
    """For a unix socket: processes of this user."""

    def ask(self, sock: socket.socket, answer: Answer) -> None:
        """See `Admission`."""
        answer("" if same_user(sock) else "the peer is a process of another user")


class LoopbackAdmission:
    """For a port of the loopback interface: processes of this user, and of root. On the loop that has made it.

    Root can read the memory of the ranks anyway, and it is root's processes that forward ports into containers; they
    have to show the token as well.
    """

    def __init__(self, table: LoopbackTable) -> None:
        self._table = table
        self._loop = asyncio.get_running_loop()
        #: What is to be looked up, and how often it has been.
        self._asked: list[tuple[Connected, Answer, int]] = []
        #: One look at a time.
        self._looking: asyncio.Task[None] | None = None

    def ask(self, sock: socket.socket, answer: Answer) -> None:
        """See `Admission`."""
        try:
            connection = Connected.of(sock)
        except OSError:
            answer("the peer has disconnected")
            return
        self._asked.append((connection, answer, 0))
        if self._looking is None:
            self._looking = self._loop.create_task(self._look())

    async def _look(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, []
            sought = [connection for connection, _, _ in asked]
            try:
                # Beside the loop: another user may have many sockets, and so make it take long.
                owners = await self._loop.run_in_executor(None, self._table.owners, sought)
            except (OSError, ValueError, IndexError) as error:
                for _, answer, _ in asked:
                    answer(f"the user of the peer cannot be found: {error}")
                continue
            for (connection, answer, looks), owner in zip(asked, owners, strict=True):
                if owner is None and looks + 1 < _LOOKS:
                    self._asked.append((connection, answer, looks + 1))
                else:
                    answer(_problem(owner))
        self._looking = None


def _problem(owner: int | None) -> str:
    if owner is None:
        return "no running process owns the other end of the connection"
    return "" if owner in (os.geteuid(), 0) else f"the peer is a process of another user (uid {owner})"
