"""The TCP port of a host: a connection says for which process it is, and goes there with all that follows.

::

    accepted --its preface--> given away
    accepted --other bytes, `HELLO_SECONDS` without a preface, `UNPROVED_MAX` newer ones--> closed

One port for each host, whatever runs there: it can be chosen, and a firewall needs one rule. Nothing is read here but
the preface (`meshrt.wire.preface`): the process that the connection is for makes TLS with the peer, and is told when it
was accepted: the time of a peer without proof is counted from there (`meshrt.transport.entrance`).
"""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence

from meshrt.errors import ProtocolError, UsageError
from meshrt.transport.acceptor import Acceptor, Readers
from meshrt.transport.deadlines import Deadlines
from meshrt.transport.refusals import Refusals
from meshrt.wire.addresses import Port
from meshrt.wire.handshake import HELLO_SECONDS, UNPROVED_MAX
from meshrt.wire.preface import PrefaceReader

__all__ = ["ACCEPTED", "BIND", "PORTS", "DataPort", "Give", "listen"]

#: Environment variable: the address that is listened at; all interfaces without it. ``0.0.0.0``: all, IPv4 alone.
BIND = "MESHRT_BIND"
#: Environment variable: the ports that may be used, ``40000-40100``; any without it.
PORTS = "MESHRT_PORTS"
#: How an agent tells a rank when a connection was accepted.
ACCEPTED = struct.Struct("d")
#: Called with a name, the connection that asks for it, and when that was accepted (monotonic).
Give = Callable[[str, socket.socket, float], None]


class DataPort:
    """One thread: that of the readers.

    Args:
        readers: Call functions when sockets can be read.
        listener: See `listen`. Closed with this.
        give: See `Give`.
        later: Calls a function after some seconds, on that thread.
    """

    def __init__(
        self,
        readers: Readers,
        listener: socket.socket,
        give: Give,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.refusals = Refusals()
        self._readers = readers
        self._give = give
        #: Those that have not said what they want, the oldest first, and when they were accepted (monotonic).
        self._silent: dict[socket.socket, tuple[PrefaceReader, float]] = {}
        self._deadlines: Deadlines[socket.socket] = Deadlines(later, self._refuse)
        self._acceptor = Acceptor(
            readers, listener, "a peer on another machine", self._accepted, later, admits=lambda _sock: True
        )
        self._acceptor.open()

    def close(self) -> None:
        """Listen no more."""
        self._acceptor.close()
        for sock in tuple(self._silent):
            self._refuse(sock)

    def _accepted(self, sock: socket.socket) -> None:
        if len(self._silent) >= UNPROVED_MAX:
            self._refuse(next(iter(self._silent)))
        self._readers.add_reader(sock, functools.partial(self._read, sock))
        now = time.monotonic()
        self._silent[sock] = PrefaceReader(), now
        self._deadlines.set(sock, now + HELLO_SECONDS)

    def _read(self, sock: socket.socket) -> None:
        if sock not in self._silent:  # closed since it was found readable
            return
        reader, accepted = self._silent[sock]
        try:
            data = sock.recv(reader.missing)
            if data:
                reader.receive_data(data)
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as error:
            self.refusals.note("a peer at the port of this host", error)
            self._refuse(sock)
            return
        if not data:
            self._refuse(sock)
        elif not reader.missing:
            self._forget(sock)
            self._give(reader.name, sock, accepted)

    def _forget(self, sock: socket.socket) -> None:
        self._deadlines.drop(sock)
        del self._silent[sock]
        self._readers.remove_reader(sock)

    def _refuse(self, sock: socket.socket) -> None:
        self._forget(sock)
        sock.close()


def listen(port: int = 0) -> tuple[socket.socket, tuple[Port, ...]]:
    """Return a socket that listens for other machines, and the addresses at which they may try to reach it.

    Args:
        port: This one, whatever the environment says; 0: one of those.
    Raises:
        UsageError: A variable of the environment has an invalid value.
        OSError: No port is free, or the address is not one of this machine.
    """
    bind = os.environ.get(BIND, "")
    for number in [port] if port else _ports():
        try:
            if bind:
                listener = socket.create_server((bind, number), family=_family(bind), backlog=4096)
            elif socket.has_dualstack_ipv6():
                listener = socket.create_server(
                    ("::", number), family=socket.AF_INET6, backlog=4096, dualstack_ipv6=True
                )
            else:
                listener = socket.create_server(("", number), backlog=4096)
            break
        except OSError as error:
            problem = error
    else:
        raise problem
    # Never a name: what a machine calls itself may be a loopback address on others, or nothing at all.
    address, number = listener.getsockname()[:2]
    if not bind:
        addresses = _interfaces(socket.AF_INET, socket.AF_INET6)
    elif ipaddress.ip_address(address).is_unspecified:  # it can be listened at, and not be dialled
        addresses = _interfaces(listener.family)
    else:
        addresses = [address]
    return listener, tuple((each, number) for each in addresses)


def _ports() -> Sequence[int]:
    text = os.environ.get(PORTS, "")
    if not text:
        return [0]
    first, dash, last = text.partition("-")
    try:
        ports = range(int(first), int(last if dash else first) + 1)
    except ValueError:
        ports = range(0)
    if not ports or ports[0] < 1 or ports[-1] > 65535:
        raise UsageError(f"{PORTS}={text!r} is not a valid range of ports; expected for example 40000-40100")
    return ports


def _family(address: str) -> socket.AddressFamily:
    return socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]


def _interfaces(*families: int) -> list[str]:
    """Return the addresses of this machine that others may know it by: IPv4 first; loopback if there is no other.

    Args:
        families: ``AF_INET``, ``AF_INET6`` or both.
    """
    import psutil  # start-up: only where there are several machines

    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    found = [
        address.address
        for label, addresses in psutil.net_if_addrs().items()
        if label.partition(":")[0] in up  # an address may have a label of its own, "eth0:1"
        for address in addresses
        if address.family in families
    ]
    # Addresses of one wire alone (fe80::) lead elsewhere for each machine.
    usable = [each for each in found if not each.startswith(("127.", "169.254.", "fe80:")) and each != "::1"]
    # No network: agents on this machine.
    return sorted(usable, key=lambda each: ":" in each) or ["127.0.0.1" if socket.AF_INET in families else "::1"]
