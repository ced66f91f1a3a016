"""Without any runtime: a round trip of a few bytes over TLS, and one array over TCP, between two machines.

``python -m bench.hosts.floor`` is the far end; it reads a certificate with its key from standard input.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meshrt.mesh.invitations import make_certificate

__all__ = ["Floor", "far_end"]

MESSAGE = 200
CHUNK = 1 << 20
NEVER = "a round trip ended early"


class Floor:
    """The near end."""

    def __init__(self, tls: socket.socket, tcp: socket.socket) -> None:
        self._tls = tls
        self._tcp = tcp
        self._data = b""

    def round_trip(self) -> float:
        """Return the seconds that one message and its echo take over TLS."""
        begin = time.perf_counter()
        self._tls.sendall(bytes(MESSAGE))
        read(self._tls, MESSAGE)
        return time.perf_counter() - begin

    def transfer(self, size: int) -> float:
        """Return the seconds that so many bytes take over TCP, until the far end has them."""
        if len(self._data) != size:
            self._data = b"\1" * size  # zeros that nobody has written are one page, which stays in the cache
        begin = time.perf_counter()
        self._tcp.sendall(size.to_bytes(8, "big"))
        self._tcp.sendall(self._data)
        read(self._tcp, 1)
        return time.perf_counter() - begin


@contextmanager
def far_end(command: list[str], address: str) -> Iterator[Floor]:
    """Start the far end by a command that runs others there, and connect to it."""
    made = make_certificate()
    pem = made.certificate + made.key
    far = subprocess.Popen(
        [*command, "env", f"PYTHONPATH={os.environ['PYTHONPATH']}", sys.executable, "-m", "bench.hosts.floor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert far.stdin is not None and far.stdout is not None
    try:
        far.stdin.write(json.dumps(pem.decode()).encode() + b"\n")
        far.stdin.flush()
        port = int(far.stdout.readline())
        with tempfile.NamedTemporaryFile() as file:
            file.write(pem)
            file.flush()
            context = ssl.create_default_context(cafile=file.name)
            context.check_hostname = False
            tcp = socket.create_connection((address, port))
            tls = context.wrap_socket(socket.create_connection((address, port)))
        for each in (tcp, tls):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with tcp, tls:
            yield Floor(tls, tcp)
    finally:
        far.kill()
        far.communicate()


def read(sock: socket.socket, size: int) -> None:
    """Read so many bytes."""
    memory = memoryview(bytearray(min(size, CHUNK)))
    while size:
        count = sock.recv_into(memory[: min(size, CHUNK)])
        if not count:
            raise EOFError(NEVER)
        size -= count


def main() -> None:
    """Be the far end: first the connection of arrays, then that of messages, each by a process of its own."""
    pem = json.loads(sys.stdin.readline())
    listener = socket.create_server(("", 0))
    print(listener.getsockname()[1], flush=True)
    tcp, _ = listener.accept()
    if os.fork() == 0:
        while size := tcp.recv(8, socket.MSG_WAITALL):
            read(tcp, int.from_bytes(size, "big"))
            tcp.sendall(b".")
        return
    with tempfile.NamedTemporaryFile("w") as file:
        Path(file.name).write_text(pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file.name)
    raw, _ = listener.accept()
    tls = context.wrap_socket(raw, server_side=True)
    tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := tls.recv(MESSAGE):
        tls.sendall(data)


if __name__ == "__main__":
    main()
