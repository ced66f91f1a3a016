"""A port for a program that is told one: nobody listens at it, and nobody is given it meanwhile."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

__all__ = ["free_port"]

#: Ports for the tests begin here.
_FIRST = 20_000


def free_port() -> int:
    """Return a port that is free on loopback, outside of the range from which the kernel gives ports.

    One that the kernel has given, and that was closed again, may be given to another process before it is used.
    """
    last = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(_FIRST, last)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
