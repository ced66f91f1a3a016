"""Constructors, what every mesh has, and classes of actors. Markers: see calls.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, assert_type

import meshrt
from meshrt import Actor, ActorMesh, Future, ProcMesh, Restart, endpoint, proc_mesh, this_proc

T = TypeVar("T")


class Counter(Actor):
    """An actor."""

    def __init__(self, start: int, *, by: int = 1, name: str = "") -> None:
        self.value = start
        self.by = by
        self.name = name

    @endpoint
    def add(self, number: int) -> int:
        self.value += number
        return self.value

    @endpoint
    async def later(self, number: int) -> int:
        return self.add(number)


class Bare(Actor):
    """One without a constructor, with an attribute of the class, and with an endpoint whose name every mesh has."""

    kind: str = "store"

    @endpoint
    def get(self, key: str) -> bytes:
        return key.encode()


def told(restart: Restart) -> None: ...


def spawning(mesh: ProcMesh) -> None:
    assert_type(mesh.spawn("counter", Counter, 1), ActorMesh[Counter])
    assert_type(this_proc().spawn("counter", Counter, start=1, by=2), ActorMesh[Counter])
    assert_type(proc_mesh(n=2).spawn("bare", Bare), ActorMesh[Bare])
    assert_type(mesh.spawn("counter", Counter, 1, max_restarts=2, on_restart=told), ActorMesh[Counter])
    assert_type(meshrt.get_or_spawn("counter", Counter, 1), Future[ActorMesh[Counter]])
    assert_type(meshrt.get_singleton("counter", Counter), ActorMesh[Counter])
    assert_type(meshrt.connect().actor("counter", Counter), ActorMesh[Counter])
    meshrt.get_singleton("counter").add.call(1)
    meshrt.connect().actor("counter").add.call(1)


def wrong_spawning(mesh: ProcMesh) -> None:
    mesh.spawn("counter", Counter)  # error
    mesh.spawn("counter", Counter, "1")  # error
    mesh.spawn("counter", Counter, 1, 2)  # error
    mesh.spawn("counter", Counter, 1, to=2)  # error
    mesh.spawn("bare", Bare, 1)  # error
    mesh.spawn("counter", Counter, 1, max_restarts="2")  # error
    mesh.spawn("counter", Counter, 1, on_restart=told)  # error
    mesh.spawn("number", int, 1)  # error
    mesh.spawn(Counter, 1)  # error
    meshrt.get_or_spawn("counter", Counter, "1")  # error
    mesh.spwan("counter", Counter, 1)  # error


def every_mesh(counters: ActorMesh[Counter]) -> None:
    assert_type(counters.slice(dp=0), ActorMesh[Counter])
    assert_type(counters.slice(dp=slice(0, 2)).add.call_one(1), Future[int])
    assert_type(counters.flatten("rank").rename(rank="r"), ActorMesh[Counter])
    assert_type(counters.select("dp=0"), ActorMesh[Counter])
    assert_type(counters.split(dp=("a", "b"), a=2).later.call_one(1), Future[int])
    assert_type(counters.get(timeout=1.0), ActorMesh[Counter])
    assert_type(counters.initialized, Future[None])
    assert_type(counters.stop(), Future[None])
    assert_type(counters.sizes, dict[str, int])
    assert_type(counters.size("dp"), int)
    assert_type(len(counters), int)
    counters.stop("now")  # error
    counters.get("x")  # error
    print(counters.value)  # error
    counters.sizes = {}  # error


def blocks(mesh: ProcMesh) -> None:
    with mesh.spawn("counter", Counter, 1) as counters:
        assert_type(counters, ActorMesh[Counter])
    with proc_mesh(n=2) as processes:
        assert_type(processes, ProcMesh)


async def async_blocks(mesh: ProcMesh) -> None:
    async with mesh.spawn("counter", Counter, 1) as counters:
        assert_type(counters, ActorMesh[Counter])
    later = mesh.spawn("counter", Counter, 1)
    await later.initialized
    assert_type(await meshrt.get_or_spawn("counter", Counter, 1), ActorMesh[Counter])
    # pyright awaits no class, and a mesh is one for it. mypy does: it gives the mesh.
    await later  # error: pyright


class Driver(Actor):
    """Handles as arguments, and attributes that are named as those of a mesh."""

    def __init__(self, counters: ActorMesh[Counter]) -> None:
        self.counters = counters
        self.size = 3

    @endpoint
    def run(self, more: ActorMesh[Counter], each: list[ActorMesh[Counter]]) -> list[int]:
        self.counters.add.call("x")  # error
        more.add.broadcast(self.size)
        return self.counters.add.call(100).get().values()


def handles(mesh: ProcMesh, counters: ActorMesh[Counter], bare: ActorMesh[Bare]) -> None:
    driver = mesh.spawn("driver", Driver, counters)
    driver.run.call(counters, [counters.slice(dp=0)])
    driver.run.call(bare, [])  # error
    mesh.spawn("driver", Driver, bare)  # error
    anything: ActorMesh[Any] = counters
    anything.whatever.call(1, 2, 3)


class Doubling(Counter):
    """An endpoint of a subclass may accept more, and nothing else."""

    @endpoint
    def add(self, number: int, times: int = 2) -> int:
        return super().add(number * times)

    @endpoint
    async def later(self, number: int) -> int:
        return await super().later(number) * 2


class Incompatible(Counter):
    """These arguments do not fit where a Counter is expected."""

    @endpoint
    def add(self, number: str) -> int:  # error
        return int(number)


def subclasses(doubling: ActorMesh[Doubling]) -> None:
    assert_type(doubling.add.call_one(1, times=3), Future[int])
    assert_type(doubling.later.call_one(1), Future[int])
    every_mesh(doubling)
    doubling.add.call_one(1, by=3)  # error


class Store(Actor, Generic[T]):
    """A generic class."""

    def __init__(self, first: T) -> None:
        self.first = first

    @endpoint
    def put(self, value: T) -> None:
        self.first = value

    @endpoint
    async def take(self) -> T:
        return self.first


class Texts(Store[str]):
    """One of them."""


def generics(mesh: ProcMesh, texts: ActorMesh[Texts]) -> None:
    store = mesh.spawn("store", Store, 3)
    assert_type(store, ActorMesh[Store[int]])
    assert_type(store.take.call_one(), Future[int])
    assert_type(texts.take.call_one(), Future[str])
    texts.put.call("x")
    texts.put.call(1)  # error
    store.put.call("x")  # error


class Job(Actor, ABC):
    """An abstract class."""

    @endpoint
    @abstractmethod
    def run(self, number: int) -> int: ...


class Square(Job):
    """A concrete one."""

    @endpoint
    def run(self, number: int) -> int:
        return number * number


@dataclass
class Point(Actor):
    """A dataclass."""

    x: int
    y: int = 0

    @endpoint
    def norm(self) -> float:
        return float(abs(self.x) + abs(self.y))


def kinds_of_classes(mesh: ProcMesh) -> None:
    assert_type(mesh.spawn("square", Square).run.call_one(3), Future[int])
    assert_type(mesh.spawn("point", Point, 1, y=2).norm.call_one(), Future[float])
    mesh.spawn("point", Point, 1, z=2)  # error
    jobs: list[ActorMesh[Job]] = [mesh.spawn("square", Square)]
    jobs[0].run.call("x")  # error


def names(bare: ActorMesh[Bare]) -> None:
    assert_type(bare.endpoint(Bare.get).call_one("x"), Future[bytes])
    bare.endpoint("get").call_one("x")
    bare.endpoint(Bare.get).call_one(1)  # error
    bare.endpoint(3)  # error


def not_said(bare: ActorMesh[Bare], counters: ActorMesh[Counter]) -> None:
    """What fails at run time alone, as a mesh is a class here (docs/tutorial.md)."""
    bare()
    counters(5)
    print(bare.kind)
