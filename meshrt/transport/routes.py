"""Which address of another host this process takes: the first one at which that host proves that it is there.

::

    unknown --find--> searched --an address proves itself--> known
                               `-none does--> unreachable, for `AGAIN_SECONDS`
    known, unreachable --doubt--> unknown

Each process finds out by itself, once for each host: what one machine reaches, another one may not.
"""

from __future__ import annotations

import errno
import functools
import hmac
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable

from meshrt.errors import AuthenticationError
from meshrt.transport.racing import begin_to_connect, described, race
from meshrt.transport.threads import RuntimeThread
from meshrt.wire.addresses import HostAddress, Port
from meshrt.wire.preface import HOST_PROOF, host_name, host_proof, preface

__all__ = ["Routes"]

#: Seconds for an address to answer. A packet that is lost is sent again after 1 s, and again after 2 s.
_SECONDS = 4.0
#: Seconds until a host is searched again that was not reached.
AGAIN_SECONDS = 60.0


class Routes:
    """The routes of one process. Any thread.

    Args:
        secret: A host proves that it has it.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._lock = threading.Lock()
        self._known: dict[HostAddress, Port] = {}
        #: Why those were not reached, and until when (monotonic) that counts.
        self._unreachable: dict[HostAddress, tuple[str, float]] = {}
        self._waiting: dict[HostAddress, list[Callable[[], None]]] = {}

    def known(self, host: HostAddress) -> Port | None:
        """Return the address at which a host has proved itself; None: none is known."""
        return self._known.get(host)

    def problem(self, host: HostAddress) -> str:
        """Return why a host was not reached at any address; "": it was, or that is not known."""
        why, until = self._unreachable.get(host, ("", 0.0))
        return why if time.monotonic() < until else ""

    def find(self, host: HostAddress, found: Callable[[], None]) -> None:
        """Search a host; then it is known, or has a problem. ``found()`` is called at once or on another thread."""
        with self._lock:
            if not (host in self._known or self.problem(host)):
                waiting = self._waiting.setdefault(host, [])
                waiting.append(found)
                if len(waiting) == 1:
                    search = functools.partial(self._search, host)
                    RuntimeThread(target=search, name="meshrt-routes", daemon=True).start()
                return
        found()

    def doubt(self, host: HostAddress) -> None:
        """What is known of a host may have changed."""
        with self._lock:
            self._known.pop(host, None)
            self._unreachable.pop(host, None)

    def _search(self, host: HostAddress) -> None:
        probe, problems = race(host.ports, lambda address: _Probe(address, host, self._secret), _SECONDS)
        with self._lock:
            if probe is not None:
                probe.close()
                self._known[host] = probe.address
            else:
                self._unreachable[host] = described(problems) or "no address", time.monotonic() + AGAIN_SECONDS
            waiting = self._waiting.pop(host)
        for found in waiting:
            found()


class _Probe:
    """An attempt to have a host prove itself at one address."""

    def __init__(self, address: Port, host: HostAddress, secret: bytes) -> None:
        self.address = address
        name = host_name(host.machine, host.agent_pid) + secrets.token_hex(16)
        self._question = preface(name)
        self._expected = host_proof(secret, name)
        self._asked = False
        self._answer = b""
        self._sock = begin_to_connect(address)

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def events(self) -> int:
        return select.POLLIN if self._asked else select.POLLOUT

    def go_on(self) -> bool:
        if not self._asked:
            problem = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if problem:
                raise OSError(problem, os.strerror(problem))
            self._sock.send(self._question)
            self._asked = True
            return False
        try:
            data = self._sock.recv(HOST_PROOF - len(self._answer))
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the address is used by another program or another host")
        self._answer += data
        if len(self._answer) < HOST_PROOF:
            return False
        if not hmac.compare_digest(self._answer, self._expected):
            raise AuthenticationError("the address is used by another program")
        return True

    def close(self) -> None:
        self._sock.close()
