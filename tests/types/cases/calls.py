"""Endpoints and their calls. A line that ends with ``# error`` is one for type checkers, and no other is."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable, Coroutine
from typing import Any, assert_type

import numpy as np

import meshrt
from meshrt import Actor, ActorMesh, Future, Port, ValueMesh, concurrent_endpoint, endpoint


class Trainer(Actor):
    """All kinds of endpoints."""

    def __init__(self, rate: float, label: str = "") -> None:
        self.rate = rate
        self.label = label

    @endpoint
    def step(self, batch: list[float]) -> float:
        return sum(batch) * self.rate

    @endpoint()
    def scale(self, by: float = 1.0, *, label: str = "") -> None:
        self.rate *= by

    @endpoint(urgent=True)
    async def status(self, *parts: str, **numbers: float) -> dict[str, float]:
        await asyncio.sleep(0)
        return {part: numbers.get(part, 0.0) for part in parts}

    @concurrent_endpoint
    async def wait(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return self.label

    @concurrent_endpoint()
    async def turn(self) -> None: ...

    @concurrent_endpoint(explicit_response_port=True)
    async def watch(self, port: Port[float], seconds: float) -> None:
        port.send(seconds)

    @endpoint
    def anything(self, value: Any) -> Any:
        return value

    @endpoint
    def load(self, weights: np.ndarray[Any, Any]) -> int:
        return len(weights)

    def plain(self, number: int) -> int:
        return number


def inside(trainer: Trainer) -> None:
    """In the actor an endpoint is a method."""
    assert_type(trainer.step([1.0]), float)
    coroutine: Coroutine[Any, Any, dict[str, float]] = trainer.status("a", b=1.0)
    coroutine.close()
    assert_type(trainer.plain(3), int)
    trainer.step("x")  # error
    trainer.step.call([1.0])  # error


async def streamed(trainers: ActorMesh[Trainer]) -> None:
    async for answer in trainers.step.stream([1.0]):
        assert_type(answer, Future[float])


async def inside_async(trainer: Trainer) -> None:
    assert_type(await trainer.status("a"), dict[str, float])
    assert_type(await trainer.wait(1.0), str)
    await trainer.step([1.0])  # error


def calls(trainers: ActorMesh[Trainer]) -> None:
    assert_type(trainers.step.call([1.0]), Future[ValueMesh[float]])
    assert_type(trainers.step.call(batch=[1.0]).get().values(), list[float])
    assert_type(trainers.step.call_one([1.0]), Future[float])
    assert_type(trainers.step.choose([1.0]).get(timeout=1.0), float)
    for answer in trainers.step.stream([1.0]):
        assert_type(answer, Future[float])
    trainers.step.broadcast([1.0])
    trainers.scale.call()
    trainers.scale.call(2.0, label="x")
    assert_type(trainers.status.call("a", "b", a=1.0), Future[ValueMesh[dict[str, float]]])
    assert_type(trainers.wait.call_one(1.0), Future[str])
    assert_type(trainers.turn.call_one(), Future[None])
    assert_type(trainers.watch.call_one(1.0), Future[float])
    assert_type(trainers.anything.call_one(object()), Future[Any])
    assert_type(trainers.step.options(timeout=1.0).call_one([1.0]), Future[float])
    assert_type(trainers.step.reduce(operator.add, [1.0]), Future[float])
    assert_type(trainers.step.map([[1.0], [2.0]]), Future[ValueMesh[float]])
    assert_type(trainers.endpoint("step").call_one([1.0]), Future[Any])
    assert_type(trainers.endpoint(Trainer.step).call_one([1.0]), Future[float])


def wrong_calls(trainers: ActorMesh[Trainer]) -> None:
    trainers.step.call("x")  # error
    trainers.step.call()  # error
    trainers.step.call([1.0], 2)  # error
    trainers.step.call(bach=[1.0])  # error
    trainers.step.call_one(["x"])  # error
    trainers.step.choose(1)  # error
    trainers.step.stream(1)  # error
    trainers.step.broadcast(1)  # error
    trainers.step.options(timeout=1.0).call(1)  # error
    trainers.step.options(time=1.0)  # error
    trainers.step.reduce(operator.add)  # error
    trainers.scale.call(2.0, "x")  # error
    trainers.status.call("a", a="b")  # error
    trainers.wait.call("x")  # error
    trainers.turn.call(1)  # error
    trainers.watch.call()  # error
    trainers.step([1.0])  # error
    trainers.step.cal([1.0])  # error
    trainers.stop_it.call()  # error
    trainers.plain.call(3)  # error
    trainers.plain(3)  # error
    trainers.endpoint(Trainer.step).call("x")  # error
    wrong: str = trainers.step.call_one([1.0]).get()  # error
    print(wrong)


async def awaited(trainers: ActorMesh[Trainer]) -> None:
    assert_type(await trainers.step.call_one([1.0]), float)
    assert_type(await trainers.status.call(), ValueMesh[dict[str, float]])
    async for done in meshrt.as_completed([trainers.wait.call_one(1.0)]):
        assert_type(done, Future[str])
    async with meshrt.nursery() as calls:
        assert_type(calls.start(trainers.step.call_one([1.0])), Future[float])


def several(trainers: ActorMesh[Trainer]) -> None:
    done, pending = meshrt.wait([trainers.step.call_one([1.0])], first=1).get()
    assert_type(done, list[Future[float]])
    assert_type(pending, list[Future[float]])
    mixed: list[Future[object]] = [trainers.step.call_one([1.0]), trainers.wait.call_one(1.0)]
    for future in meshrt.as_completed(mixed):
        assert_type(future.get(), object)
    step, wait, turn = trainers.step.call_one([1.0]), trainers.wait.call_one(1.0), trainers.turn.call_one()
    assert_type(meshrt.gather(step, wait), Future[tuple[float, str]])
    assert_type(meshrt.gather(step, wait, turn).get(), tuple[float, str, None])
    assert_type(meshrt.gather(step, wait, step, step).get(), tuple[float, str, float, float])
    assert_type(meshrt.gather(*[step, step]).get(), tuple[float, ...])
    errors = meshrt.gather(step, wait, return_exceptions=True).get()
    assert_type(errors, tuple[float | BaseException, str | BaseException])
    meshrt.gather(step, 1)  # error
    _, _, _ = meshrt.gather(step, wait).get()  # error


def references(trainers: ActorMesh[Trainer]) -> None:
    """A reference arrives as its object."""
    weights = meshrt.put(np.ones(3))
    trainers.load.call(weights)
    trainers.load.call(np.ones(3))
    trainers.load.call([1.0])  # error
    assert_type(weights.get().shape, tuple[int])


@endpoint
def function(batch: int) -> int:
    return batch


class Wrong(Actor):
    """What is no method."""

    number = endpoint(3)  # error

    @concurrent_endpoint  # error
    def not_async(self) -> int:
        return 1

    @endpoint(urgnt=True)  # error
    def misspelled(self) -> int:
        return 1


def by_values(values: ValueMesh[float], combine: Callable[[float, float], float]) -> None:
    assert_type(values.reduce(combine), float)
    assert_type(values.sum(over="dp"), ValueMesh[float])
    assert_type(values.slice(dp=0), ValueMesh[float])
    assert_type(values.item(dp=0), float)


async def returns_from_a_nursery(trainers: ActorMesh[Trainer]) -> float:
    async with meshrt.nursery() as calls:
        return await calls.start(trainers.step.call_one([1.0]))
