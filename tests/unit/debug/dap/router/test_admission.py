from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import cast

from meshrt.debug.dap.router.admission import LoopbackAdmission
from meshrt.transport.loopback import Connected, LoopbackTable
from tests.unit.debug.dap.router.fakes import run, settled, until


class Table:
    """A list of sockets. Each look finds what ``found`` says."""

    def __init__(self, found: Callable[[int], int | None]) -> None:
        self._found = found
        self.looks = 0

    def owners(self, connections: Sequence[Connected]) -> list[int | None]:
        self.looks += 1
        return [self._found(self.looks)] * len(connections)


def asked(found: Callable[[int], int | None], count: int = 1) -> tuple[list[str], int]:
    """What is said of so many connections that come together, and how often the list is looked at."""
    table, said = Table(found), list[str]()

    async def scene() -> None:
        admission = LoopbackAdmission(cast(LoopbackTable, table))
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
            for _ in range(count):
                admission.ask(sock, said.append)
            await until(lambda: len(said) == count)

    run(scene)
    return said, table.looks


def test_this_user_and_root_may_speak() -> None:
    assert asked(lambda _look: os.geteuid()) == ([""], 1)
    assert asked(lambda _look: 0) == ([""], 1)
    assert asked(lambda _look: os.geteuid() + 1) == (
        [f"the peer is a process of another user (uid {os.geteuid() + 1})"],
        1,
    )


def test_those_that_come_together_are_one_look() -> None:
    assert asked(lambda _look: os.geteuid(), 100) == ([""] * 100, 1)


def test_who_is_not_found_is_looked_for_again_and_refused() -> None:
    assert asked(lambda look: None if look < 3 else os.geteuid()) == ([""], 3)
    assert asked(lambda _look: None) == (["no running process owns the other end of the connection"], 3)


def test_not_being_able_to_look_is_no_leave() -> None:
    def fails(_look: int) -> int:
        raise OSError("unreadable")

    assert asked(fails, 2) == (["the user of the peer cannot be found: unreadable"] * 2, 1)


def test_sessions_go_on_while_it_looks() -> None:
    went_on = threading.Event()

    def found(_look: int) -> int | None:
        return os.geteuid() if went_on.wait(10) else None

    said: list[str] = []

    async def scene() -> None:
        admission = LoopbackAdmission(cast(LoopbackTable, Table(found)))
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
            admission.ask(sock, said.append)
            await settled()
            went_on.set()
            await until(lambda: said)

    run(scene)
    assert said == [""]


def test_a_connection_that_has_ended_is_not_looked_for() -> None:
    said: list[str] = []

    async def scene() -> None:
        table = Table(lambda _look: os.geteuid())
        with socket.socket() as unconnected:
            LoopbackAdmission(cast(LoopbackTable, table)).ask(unconnected, said.append)
        assert table.looks == 0

    asyncio.run(scene())
    assert said == ["the peer has disconnected"]
