"""One who belongs to no program: ``python stranger.py KIND...``; the doors are on standard input, as `guarded.py` says.

It attacks each door once with each kind and, last, says in one line of JSON what became of each connection:
``[kind, door, bytes that were received in clear, whether it was closed]``.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import socket
import ssl
import struct
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from meshrt.errors import AuthenticationError
from meshrt.mesh.invitations import make_certificate
from meshrt.wire.certificate import Certificate
from meshrt.wire.handshake import ClientHandshake
from meshrt.wire.preface import preface
from tests.cluster.guarded import Door

#: Seconds until a connection counts as not closed.
OPEN = 30.0
SILENT = 1000
Kind = Callable[[Door, Certificate], "tuple[int, bool]"]


class Exit:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (66,)


def dial(door: Door) -> socket.socket:
    """Connect to a door."""
    sock = socket.create_connection(door[1:3], timeout=OPEN)
    sock.settimeout(OPEN)
    return sock


def outcome(sock: socket.socket) -> tuple[int, bool]:
    """Read to the end; returns how much came, and whether the other side has closed."""
    received = 0
    with sock:
        try:
            while data := sock.recv(4096):
                received += len(data)
        except TimeoutError:
            return received, False
        except OSError:
            pass  # of TLS too: it was reset, or refused
        return received, True


def clear(data: Callable[[Door], bytes]) -> Kind:
    """Return what sends bytes that are no TLS."""

    def attack(door: Door, _certificate: Certificate) -> tuple[int, bool]:
        sock = dial(door)
        with contextlib.suppress(ConnectionError):
            sock.sendall(data(door))
        return outcome(sock)

    return attack


def context(shown: Certificate | None) -> ssl.SSLContext:
    """Return a client's TLS that trusts anyone, and shows a certificate or none."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    if shown is not None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(shown.certificate + shown.key)
            file.flush()
            made.load_cert_chain(file.name)
    return made


def greet(
    door: Door, shown: Certificate | None, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> ssl.SSLSocket:
    """Ask for a door, and make TLS. Raises OSError."""
    sock = dial(door)
    sock.sendall(preface(door[3]))
    made = context(shown)
    made.maximum_version = newest
    return made.wrap_socket(sock)


def tls(shown: Callable[[], Certificate | None]) -> Kind:
    """Return what makes TLS without the certificate of the program, and goes on as if it had been accepted."""

    def attack(door: Door, _certificate: Certificate) -> tuple[int, bool]:
        try:
            sock = greet(door, shown())
            sock.sendall(ClientHandshake(b"w" * 32, door[4], door[5]).hello())
        except ConnectionError:
            return 0, True
        return outcome(sock)

    return attack


def old_tls(door: Door, certificate: Certificate) -> tuple[int, bool]:
    """Make TLS 1.2, with the certificate of the program."""
    try:
        sock = greet(door, certificate, ssl.TLSVersion.TLSv1_2)
        sock.sendall(ClientHandshake(b"w" * 32, door[4], door[5]).hello())
    except (ssl.SSLError, ConnectionError):
        return 0, True
    return outcome(sock)


def wrong_secret(door: Door, certificate: Certificate) -> tuple[int, bool]:
    """Send a proof that is none, and pickles behind it."""
    handshake = ClientHandshake(b"w" * 32, door[4], door[5])
    sock = greet(door, certificate)
    sock.sendall(handshake.hello())
    received = sock.recv(4096)
    with contextlib.suppress(AuthenticationError):
        handshake.receive_data(received)
    payload = pickle.dumps((None, Exit(), (), {}))
    header = b"\x94\x01\xa1x\xc4\x00\x91\x05"
    frame = struct.pack(">IBI", len(header) + len(payload), 2, len(header)) + header + payload
    with contextlib.suppress(OSError):
        sock.sendall(bytes(32) + frame * 3)
    more, closed = outcome(sock)
    return len(received) + more, closed


def much(door: Door, certificate: Certificate) -> tuple[int, bool]:
    """Send megabytes before a proof."""
    sock = greet(door, certificate)
    with contextlib.suppress(OSError):
        for _ in range(64):
            sock.sendall(bytes(1 << 18))
    return outcome(sock)


def silent(door: Door, _certificate: Certificate) -> tuple[int, bool]:
    """Connect a thousand times; every second one says whom it wants, and no more."""
    socks = [dial(door) for _ in range(SILENT)]
    for sock in socks[::2]:  # of those, all but the last ones are closed by now
        with contextlib.suppress(ConnectionError):
            sock.sendall(preface(door[3]))
    outcomes = [outcome(sock) for sock in socks]
    return sum(received for received, _ in outcomes), all(closed for _, closed in outcomes)


KINDS: dict[str, Kind] = {
    "noise": clear(lambda _door: bytes(range(1, 256)) * 1000),
    "http": clear(lambda _door: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "half": clear(lambda door: preface(door[3])[:-2]),
    "an unknown name": clear(lambda _door: preface("rank/nobody/0")),
    "noise in place of TLS": clear(lambda door: preface(door[3]) + bytes(range(1, 256)) * 1000),
    "half of a record": clear(lambda door: preface(door[3]) + b"\x16\x03\x01\x02\x00\x01"),
    "no certificate": tls(lambda: None),
    "another certificate": tls(make_certificate),
    "TLS 1.2": old_tls,
    "a wrong secret": wrong_secret,
    "much": much,
    "silent": silent,
}


def main() -> None:
    told = json.loads(sys.stdin.read())
    certificate = Certificate(*(text.encode() for text in told["certificate"]))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found = []
    doors: list[Door] = [(*each,) for each in told["doors"]]
    with ThreadPoolExecutor(len(doors)) as threads:
        for kind in sys.argv[1:]:
            outcomes = threads.map(lambda door: KINDS[kind](door, certificate), doors)  # noqa: B023 - used at once
            found += [(kind, door[0], *each) for door, each in zip(doors, outcomes, strict=True)]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
