"""Ports, accumulators and actors in tests. Markers: see calls.py."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import assert_type

from meshrt import Accumulator, Actor, ActorMesh, Channel, Future, Port, PortReceiver, endpoint, testing


class Sender(Actor):
    """Sends to ports, and answers by one."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.port: Port[int] | None = None

    @endpoint
    def keep(self, port: Port[int]) -> Port[int]:
        self.port = port
        port.send(self.first)
        port.send("x")  # error
        port.exception(ValueError())
        port.exception("x")  # error
        return port

    @endpoint(explicit_response_port=True)
    def add(self, port: Port[int], number: int) -> None:
        port.send(self.first + number)
        port.send(None)  # error


class Other(Sender):
    """What replaces it."""


def channels(senders: ActorMesh[Sender]) -> None:
    port, receiver = Channel[int].open()
    assert_type(port, Port[int])
    assert_type(receiver, PortReceiver[int])
    assert_type(receiver.recv(), Future[int])
    assert_type(receiver.recv().get(timeout=1.0), int)
    assert_type(iter(receiver), Iterator[int])
    assert_type(senders.keep.call_one(port), Future[Port[int]])
    port.send("x")  # error
    texts, heard = Channel[str].open(once=True)
    senders.keep.call(texts)  # error
    senders.keep.call(receiver)  # error
    wrong: int = heard.recv().get()  # error
    _, ranked = Channel[str].open_ranked()
    assert_type(ranked.recv(), Future[tuple[int, str]])
    Channel[int].open(twice=True)  # error
    print(wrong)


async def on_a_loop(port: Port[int], receiver: PortReceiver[int]) -> None:
    assert_type(await receiver.recv(), int)
    async for value in receiver:
        assert_type(value, int)
    await port.wait_ready()


def accumulators(senders: ActorMesh[Sender]) -> None:
    total = Accumulator(senders.add, 0, operator.add)
    assert_type(total.accumulate(1), Future[int])
    found: list[int] = []
    listed = Accumulator(senders.add, found, lambda so_far, value: [*so_far, value])
    assert_type(listed.accumulate(number=1).get(), list[int])
    total.accumulate("x")  # error
    total.accumulate()  # error
    Accumulator(senders, 0, operator.add)  # error


def in_tests() -> None:
    with testing.local(Sender, 1) as sender:
        assert_type(sender, ActorMesh[Sender])
        sender.add.call_one("x")  # error
    with testing.local_mesh(dp=2) as mesh:
        assert_type(mesh.spawn("sender", Sender, 1), ActorMesh[Sender])
    testing.local(Sender, "x")  # error
    testing.local(Sender, second=1)  # error
    with testing.patch_actor(Sender, Other) as other:
        assert_type(other, type[Other])
    with testing.fake_clock() as clock:
        assert_type(clock.time(), float)
        clock.advance("x")  # error


@testing.patch_actor(Sender, Other)
async def replaced(number: int) -> str:
    return str(number)


async def decorated() -> None:
    assert_type(await replaced(1), str)
    await replaced("x")  # error
