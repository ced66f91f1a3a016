from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from meshrt.transport.loopback import Connected, LoopbackTable


@pytest.fixture
def table() -> Iterator[LoopbackTable]:
    table = LoopbackTable()
    yield table
    table.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_user_at_the_other_end(table: LoopbackTable, server: socket.socket) -> None:
    address = server.getsockname()
    with socket.create_connection(address), server.accept()[0] as sock:
        connection = Connected.of(sock)
        assert connection.local == address
        assert table.owners([connection, connection]) == [os.geteuid()] * 2
        # The other way round it is this process, too; a connection that there is not is nobody's.
        assert table.owners([Connected(connection.peer, connection.local)]) == [os.geteuid()]
        assert table.owners([Connected(connection.local, ("127.0.0.1", 1))]) == [None]


def test_a_client_that_dials_through_ipv6(table: LoopbackTable, server: socket.socket) -> None:
    try:
        client = socket.socket(socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with client:
        client.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
        with server.accept()[0] as sock:
            assert table.owners([Connected.of(sock)]) == [os.geteuid()]


def test_a_socket_that_its_process_has_closed_is_nobodys(table: LoopbackTable, server: socket.socket) -> None:
    """It is listed with user id 0, which is not root's."""
    client = socket.create_connection(server.getsockname())
    with server.accept()[0] as sock:
        connection = Connected.of(sock)
        client.close()
        assert table.owners([connection]) == [None]


def test_who_listens(table: LoopbackTable, server: socket.socket) -> None:
    port = server.getsockname()[1]
    assert table.listener(port) == os.geteuid()
    server.close()
    assert table.listener(port) is None
    with socket.create_server(("", 0)) as everywhere:
        assert table.listener(everywhere.getsockname()[1]) == os.geteuid()


def test_no_descriptor_is_needed_for_a_look(table: LoopbackTable, server: socket.socket) -> None:
    before = os.listdir("/proc/self/fd")
    table.owners([])
    assert os.listdir("/proc/self/fd") == before
    table.close()
    assert len(os.listdir("/proc/self/fd")) < len(before)
