"""TLS in place of a socket: what links and entrances expect of a socket holds, whatever the kernel takes and gives."""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import ssl
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshrt.mesh.invitations import make_certificate
from meshrt.transport.secured import EARLY_MAX, GREETING_MAX, SecureLink, SecureSocket
from meshrt.wire.certificate import Certificate
from meshrt.wire.frames import Frame, split_frames
from tests.support.waiting import wait_until

CERTIFICATE = make_certificate()


@contextlib.contextmanager
def pair(certificate: Certificate = CERTIFICATE, small: bool = False) -> Iterator[tuple[SecureSocket, SecureSocket]]:
    """A client and a server, on loopback; ``small``: the kernel takes little at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.socket()
    if small:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    client.connect_ex(listener.getsockname())
    dialled = SecureSocket(client, certificate, server=False)
    accepted = SecureSocket(listener.accept()[0], CERTIFICATE, server=True)
    listener.close()
    try:
        yield dialled, accepted
    finally:
        dialled.close()
        accepted.close()


def readable(sock: SecureSocket, seconds: float = 5.0) -> bool:
    return sock.pending or bool(select.select([sock], [], [], seconds)[0])


def received(sock: SecureSocket, other: SecureSocket, size: int) -> bytes:
    """All that comes, up to ``size`` bytes; ``other`` reads too, as the greeting requires."""
    data = b""
    while len(data) < size:
        for each in (sock, other):
            with contextlib.suppress(BlockingIOError):
                if each is other:
                    each.recv(1, socket.MSG_PEEK)
                else:
                    new = each.recv(size - len(data))
                    if not new:
                        return data
                    data += new
        if len(data) < size:
            select.select([sock, other], [], [], 1.0)
    return data


def greeted(client: SecureSocket, server: SecureSocket) -> None:
    select.select([], [client], [], 5.0)
    client.send(b"?")
    assert received(server, client, 1) == b"?"
    server.send(b"!")
    assert received(client, server, 1) == b"!"


def test_what_is_sent_before_the_greeting_arrives_after_it() -> None:
    with pair() as (client, server):
        select.select([], [client], [], 5.0)
        assert client.send(b"hello") == 5
        assert client.sendmsg([b"a", memoryview(b"b")]) == 2
        with pytest.raises(BlockingIOError):
            client.send(bytes(EARLY_MAX))
        assert received(server, client, 7) == b"helloab"


def test_a_peer_without_the_certificate_is_refused_on_both_sides() -> None:
    with pair(make_certificate()) as (client, server):
        select.select([], [client], [], 5.0)
        client.send(b"hello")
        failed: list[OSError] = []
        while len(failed) < 2:
            for each in (client, server):
                select.select([each], [], [], 0.2)
                try:
                    assert not each.recv(100)
                except BlockingIOError:
                    pass
                except OSError as error:
                    failed.append(error)
                    each.close() if each is client else None
        assert "TLS failed" in str(failed[0])


def test_foreign_bytes_fail_and_give_nothing() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with contextlib.closing(socket.create_connection(listener.getsockname())) as foreign:
        server = SecureSocket(listener.accept()[0], CERTIFICATE, server=True)
        foreign.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert readable(server)
        with pytest.raises(ConnectionAbortedError, match="TLS failed"):
            server.recv(100)
        server.close()
    listener.close()


@pytest.mark.parametrize("listens", [True, False], ids=["as a server", "as a client"])
def test_a_peer_of_tls_1_2_is_refused(listens: bool) -> None:
    """Although it has the certificate, and can speak no other version."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if listens else ssl.PROTOCOL_TLS_SERVER)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.NamedTemporaryFile() as file:
        file.write(CERTIFICATE.certificate + CERTIFICATE.key)
        file.flush()
        context.load_cert_chain(file.name)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    theirs.setblocking(False)
    refused: dict[str, str] = {}
    with (
        context.wrap_socket(theirs, server_side=not listens, do_handshake_on_connect=False) as peer,
        contextlib.closing(SecureSocket(ours, CERTIFICATE, server=listens)) as sock,
    ):
        while len(refused) < 2:
            for side, step in (("peer", peer.do_handshake), ("own", lambda: sock.recv(1))):
                try:
                    assert step() != b"" and peer.version() is None, "TLS 1.2 is made"
                except (ssl.SSLWantReadError, BlockingIOError):
                    select.select([peer.fileno(), sock.fileno()], [], [], 0.2)
                except OSError as error:
                    refused.setdefault(side, str(error))
    assert "TLS failed: " in refused["own"] and "PROTOCOL" in refused["own"], refused


def unread(sock: SecureSocket) -> int:
    """Bytes that the kernel has for a socket."""
    return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def test_of_a_stranger_little_is_read() -> None:
    sent = 3 * GREETING_MAX
    listener = socket.create_server(("127.0.0.1", 0))
    with contextlib.closing(socket.create_connection(listener.getsockname())) as stranger:
        server = SecureSocket(listener.accept()[0], CERTIFICATE, server=True)
        stranger.sendall(b"\x16\x03\x01\x40\x00" + bytes(sent - 5))
        wait_until(lambda: unread(server) == sent, 20)
        with pytest.raises(BlockingIOError):
            server.recv(4096)
        assert unread(server) == sent - GREETING_MAX
        with pytest.raises(ConnectionAbortedError, match=f"more than {GREETING_MAX} bytes before the proof"):
            server.recv(4096)
        assert unread(server) == sent - GREETING_MAX
        server.close()
    listener.close()


def test_of_a_peer_with_the_certificate_little_is_read_before_the_proof_of_the_secret() -> None:
    with pair() as (client, server):
        greeted(client, server)
        data = bytes(10_000)
        with pytest.raises(ConnectionAbortedError, match=f"more than {GREETING_MAX} bytes before the proof"):  # noqa: PT012
            for _ in range(10):
                with contextlib.suppress(BlockingIOError):
                    client.send(data)
                assert readable(server)
                with contextlib.suppress(BlockingIOError):
                    server.recv(4096)


def test_of_a_peer_that_is_trusted_all_is_read() -> None:
    with pair() as (client, server):
        greeted(client, server)
        server.trust()
        assert exchange(client, server, [bytes(GREETING_MAX)] * 3, lambda: 4096) == bytes(3 * GREETING_MAX)
        assert exchange(server, client, [bytes(GREETING_MAX)] * 3, lambda: 4096) == bytes(3 * GREETING_MAX)


def test_peeking_leaves_bytes_where_they_are() -> None:
    with pair() as (client, server):
        greeted(client, server)
        client.send(b"first")
        assert readable(server)
        assert server.recv(1, socket.MSG_PEEK) == b"f"
        client.send(b"second")
        assert readable(server)
        while len(server.recv(100, socket.MSG_PEEK)) < 11:
            select.select([server], [], [], 1.0)
        assert server.recv(7) == b"firstse"
        target = bytearray(10)
        assert server.recv_into(memoryview(target)) == 4
        assert target[:4] == b"cond"
        with pytest.raises(BlockingIOError):
            server.recv(1, socket.MSG_PEEK)


def test_the_end_is_seen_behind_the_last_bytes() -> None:
    with pair() as (client, server):
        greeted(client, server)
        client.send(b"last")
        client.close()
        assert readable(server)
        assert server.recv(100) == b"last"
        assert readable(server)
        assert server.recv(100, socket.MSG_PEEK) == b""
        assert server.recv(100) == b""


def exchange(client: SecureSocket, server: SecureSocket, parts: list[bytes], step: Callable[[], int]) -> bytes:
    """Offer all parts until they are taken, as a link does; return what arrives."""
    waiting = [memoryview(part) for part in parts if part]
    wanted = sum(map(len, parts))
    arrived = bytearray()
    while len(arrived) < wanted:
        with contextlib.suppress(BlockingIOError):
            while waiting:
                taken = client.sendmsg(waiting[:64])
                while taken:
                    if len(waiting[0]) <= taken:
                        taken -= len(waiting.pop(0))
                    else:
                        waiting[0] = waiting[0][taken:]
                        taken = 0
        if readable(server, 1.0):
            with contextlib.suppress(BlockingIOError):
                while True:
                    target = bytearray(step())
                    arrived += target[: server.recv_into(memoryview(target))]
    return bytes(arrived)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 1000, 16_383, 16_384, 16_385, 70_000, 300_000]), min_size=1, max_size=12),
    steps=st.lists(st.sampled_from([1000, 16_384, 100_000, 1 << 18]), min_size=1, max_size=4),
)
def test_bytes_arrive_in_order_though_the_kernel_takes_little(sizes: list[int], steps: list[int]) -> None:
    parts = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    turn = iter(range(1 << 30))
    with pair(small=True) as (client, server):
        greeted(client, server)
        server.trust()
        assert exchange(client, server, parts, lambda: steps[next(turn) % len(steps)]) == b"".join(parts)


def test_links_speak_frames_over_it() -> None:
    with pair() as (client, server):
        greeted(client, server)
        server.trust()
        ours, theirs = SecureLink(client), SecureLink(server)
        payload = bytes(range(256)) * 40_000
        frames = [split_frames(3, [index], [payload[: index * 1_000_000]]) for index in range(10)]
        sent = [ours.send(frame) for frame in frames]
        done = all(sent)
        got: list[Frame] = []
        while len(got) < 10:
            if not done:
                done = ours.flush()
            select.select([server], [], [], 0.5)
            frames_now = theirs.read()
            assert frames_now is not None
            got += frames_now
        assert [frame.header for frame in got] == [[index] for index in range(10)]
        assert all(bytes(frame.payload) == payload[: index * 1_000_000] for index, frame in enumerate(got))
        assert ours.at_rest()
        ours.close()
        assert readable(server)
        assert theirs.at_end()
        assert theirs.read() is None
