"""Endpoints that answer by a port, now or later; and Accumulator, which folds what endpoints return."""

from __future__ import annotations

import asyncio
import operator
import pickle
import threading
from typing import Any

import numpy as np
import pytest

from meshrt import (
    Accumulator,
    Actor,
    ActorError,
    ActorMesh,
    MeshStopped,
    Port,
    UsageError,
    current_rank,
    endpoint,
    gather,
    nursery,
    proc_mesh,
)
from meshrt.transport.process import current_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 20


class Ported(Actor):
    def __init__(self) -> None:
        self.port: Any = None

    @endpoint(explicit_response_port=True)
    def add(self, port: Port[int], number: int, *, more: int = 0) -> None:
        port.send(number + more + current_rank().rank)

    @endpoint(explicit_response_port=True)
    async def add_async(self, port: Port[int], number: int) -> None:
        await asyncio.sleep(0)
        port.send(number)

    @endpoint(explicit_response_port=True)
    def keep(self, port: Port[Any]) -> None:
        self.port = port

    @endpoint
    def send_kept(self, value: Any) -> None:
        port, self.port = self.port, None
        threading.Thread(target=port.send, args=(value,)).start()

    @endpoint(explicit_response_port=True)
    def drop(self, _port: Port[int]) -> None:
        pass

    @endpoint(explicit_response_port=True)
    def fail(self, port: Port[int], by_port: bool) -> None:
        if by_port:
            port.exception(LookupError("by the port"))
        else:
            raise LookupError("raised")

    @endpoint(explicit_response_port=True)
    def pickled(self, port: Port[str]) -> None:
        try:
            pickle.dumps(port)
        except TypeError as error:
            port.send(str(error))


@pytest.fixture
def ported() -> ActorMesh[Ported]:
    return proc_mesh(n=2).spawn("ported", Ported).get(WAIT)


def test_an_endpoint_answers_by_its_port(ported: ActorMesh[Ported]) -> None:
    assert ported.add.call(1, more=10).get(WAIT).values() == [11, 12]
    assert ported.slice(n=1).add.call_one(5).get(WAIT) == 5
    assert ported.add.choose(5).get(WAIT) in (5, 6)
    assert sorted(future.get(WAIT) for future in ported.add.stream(0)) == [0, 1]
    assert ported.add_async.call(3).get(WAIT).values() == [3, 3]
    ported.add.broadcast(1)
    with pytest.raises(TypeError, match="missing a required argument: 'number'"):
        ported.add.call()  # type: ignore[call-arg]


def test_an_answer_may_come_later_from_any_thread(ported: ActorMesh[Ported]) -> None:
    kept = ported.keep.call()
    array = np.arange(100_000)
    ported.send_kept.call(array).get(WAIT)
    assert [value.sum() for value in kept.get(WAIT).values()] == [array.sum()] * 2


def test_a_call_that_is_cancelled_and_owes_an_answer_has_ended(ported: ActorMesh[Ported]) -> None:
    with pytest.raises(ZeroDivisionError):
        _raise_beside(ported)
    assert ported.add.call(1).get(WAIT).values() == [1, 2]


def _raise_beside(ported: ActorMesh[Ported]) -> None:
    with nursery() as calls:
        calls.start(ported.keep.call())
        ported.add.call(0).get(WAIT)
        raise ZeroDivisionError


def test_an_answer_that_never_comes_is_said(ported: ActorMesh[Ported]) -> None:
    with pytest.raises(ActorError, match=r"ported.drop\(\) has dropped its response port without an answer"):
        ported.drop.call().get(WAIT)
    kept = ported.keep.call()
    ported.stop()
    with pytest.raises(MeshStopped):
        kept.get(WAIT)


@pytest.mark.parametrize("by_port", [False, True])
def test_an_exception_is_the_answer(ported: ActorMesh[Ported], by_port: bool) -> None:
    with pytest.raises(LookupError, match="by the port" if by_port else "raised"):
        ported.fail.call(by_port).get(WAIT)


def test_a_response_port_stays_on_its_rank(ported: ActorMesh[Ported]) -> None:
    assert "a response port cannot be sent to another process" in ported.pickled.call().get(WAIT).get(0)


def test_a_response_port_needs_a_parameter() -> None:
    with pytest.raises(UsageError, match="expected a parameter for its response port, after self"):
        endpoint(explicit_response_port=True)(lambda self: None)  # type: ignore[arg-type, misc]


def test_an_accumulator_folds_what_ranks_return(ported: ActorMesh[Ported]) -> None:
    assert Accumulator(ported.add, 100, operator.add).accumulate(1).get(WAIT) == 103
    nothing: list[int] = []
    folded = Accumulator(ported.add, nothing, lambda found, value: [*found, value]).accumulate(0).get(WAIT)
    assert sorted(folded) == [0, 1] and nothing == []
    both = gather(Accumulator(ported.add, 0, operator.add).accumulate(0), ported.add.call(0)).get(WAIT)
    assert both[0] == 1
    driver = current_runtime().driver
    unread: Any = driver.on_failure
    known = set(unread.__self__.unread)
    with pytest.raises(LookupError):
        Accumulator(ported.fail, 0, operator.add).accumulate(False).get(WAIT)
    wait_until(lambda: not driver.outstanding(), WAIT)
    wait_until(lambda: set(unread.__self__.unread) <= known, WAIT, "the error of one rank stands for all")
