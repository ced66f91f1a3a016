"""Ranks that step, or are at work on a line, are interrupted once more; and what the program finds afterwards."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
from typing import Any

import pytest

from meshrt import Actor, ActorError, endpoint, proc_mesh
from tests.debug.harness import Person, person
from tests.support.waiting import wait_until

WAIT = 20
LATER = sys.version_info >= (3, 12)


class Again(Actor):
    """Waits in calls that a person steps over; ``self.pair[1].send(b"x")`` lets it go on."""

    def __init__(self) -> None:
        self.pair = socket.socketpair()
        self.go = True
        self.turns = 0

    @endpoint
    def receive(self) -> int:
        begun = 1
        breakpoint()
        got = self.pair[0].recv(1)
        return len(got) + begun

    @endpoint
    def inner(self) -> int:
        breakpoint()
        got = self._inner()
        return got

    def _inner(self) -> int:
        secret = 5
        self.pair[0].recv(1)
        return secret

    @endpoint
    def spins(self) -> int:
        breakpoint()
        turns = self._spin()
        return turns

    def _spin(self) -> int:
        while self.go:
            self.turns += 1
        return 7

    @endpoint
    def stays(self, value: int) -> int:
        breakpoint()
        return value + 1

    @endpoint
    def pid(self) -> int:
        return 1


class AsyncAgain(Actor):
    """The same, with an event loop."""

    def __init__(self) -> None:
        self.pair = socket.socketpair()
        self.event: Any = None
        self.go = True

    @endpoint
    async def waits(self) -> int:
        self.event = asyncio.Event()
        breakpoint()
        await self.event.wait()
        return 3

    @endpoint
    async def blocks(self) -> int:
        breakpoint()
        got = self.pair[0].recv(1)
        return len(got)

    @endpoint
    async def spins(self) -> int:
        breakpoint()
        while self.go:
            pass
        return 4

    @endpoint
    async def stays(self, value: int) -> int:
        breakpoint()
        return value + 1


def type_in(me: Person, line: str) -> None:
    """Type a line at the attached rank without waiting for what becomes of it."""
    me.client.ask("debug.send", line=line)


def steps_on(me: Person, line: str) -> None:
    """Type a line that leads into a call that blocks."""
    type_in(me, line)
    wait_until(lambda: not me.rows(), WAIT)
    time.sleep(0.2)


def works_on(me: Person, line: str) -> None:
    """Type a line that does not come to its end."""
    type_in(me, line)
    wait_until(lambda: "at work on" in me.rows()[0]["note"], WAIT)
    time.sleep(0.2)


def line_of(me: Person) -> str:
    return me("l .").partition("->")[2].splitlines()[0].strip()


@pytest.mark.parametrize(
    ("name", "source", "function", "result"),
    [
        ("receive", "got = self.pair[0].recv(1)", "receive", 2),
        ("inner", "self.pair[0].recv(1)", "_inner", 5),
    ],
)
def test_a_stepped_call_that_blocks_is_interrupted(name: str, source: str, function: str, result: int) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Again).get(WAIT)
    answer = getattr(worker, name).call_one()
    with person() as me:
        me.wait("worker")
        me("attach worker 0")
        assert "got = " in me("n")
        for step in ("n", "r", "s"):
            steps_on(me, step)
            shown = me("interrupt worker")
            assert me.ok, shown
            assert f"{function}()" in shown
            assert source in shown
            assert me.prompt.startswith("worker")
            assert "self" in me("p list(locals())")
            assert line_of(me) == source
        me("!self.pair[1].send(b'x')")
        assert "return" in me("n")
        me("c")
        assert answer.get(WAIT) == result
        assert me("list") == "nothing is stopped\n"
