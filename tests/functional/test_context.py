"""Where am I: ``current_rank``, ``current_size``, ``current_actor_name`` and ``context``, seen from inside."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from meshrt import (
    Actor,
    Point,
    context,
    current_actor_name,
    current_rank,
    current_size,
    endpoint,
    proc_mesh,
)
from tests.support.actors import AsyncEcho

pytestmark = pytest.mark.one_program


class Teller(Actor):
    """Tells what it sees."""

    def __init__(self) -> None:
        self.built = (dict(current_rank()), current_size(), context().actor_instance.name)

    @endpoint
    def at_init(self) -> Any:
        return self.built

    @endpoint
    def now(self) -> Any:
        point = current_rank()
        instance = context().actor_instance
        return {
            "point": dict(point),
            "rank": point.rank,
            "is_point": isinstance(point, Point),
            "size": current_size(),
            "name": instance.name,
            "spawned_at": dict(instance.rank),
            "class": instance.class_name,
            "same": context().message_rank == point,
        }

    @endpoint
    def full_name(self) -> str:
        assert context().actor_instance.creator is not None
        return current_actor_name()

    @endpoint
    def in_a_thread(self) -> Any:
        """A thread that user code starts has no message, unless it is given the context."""
        seen: list[Any] = []
        alone = threading.Thread(target=lambda: seen.append(current_size()))
        copied = contextvars.copy_context()
        told = threading.Thread(target=lambda: seen.append(copied.run(current_size)))
        for thread in (alone, told):
            thread.start()
            thread.join()
        return seen

    @endpoint
    async def across_messages(self) -> Any:
        """A task of an earlier message keeps the place of that message."""
        before = dict(current_rank())
        await asyncio.sleep(0)
        return before, dict(current_rank())


def test_inside_an_endpoint_and_init() -> None:
    teller = proc_mesh(hosts=2, gpus=2).spawn("teller", Teller)
    for point, seen in teller.now.call().get(20).items():
        assert seen == {
            "point": dict(point),
            "rank": point.rank,
            "is_point": True,
            "size": {"hosts": 2, "gpus": 2},
            "name": "teller",
            "spawned_at": dict(point),
            "class": "Teller",
            "same": True,
        }
    assert teller.at_init.call().get(20).item(hosts=1, gpus=0) == (
        {"hosts": 1, "gpus": 0},
        {"hosts": 2, "gpus": 2},
        "teller",
    )


def test_through_a_view_the_coordinates_are_those_of_the_view() -> None:
    teller = proc_mesh(hosts=2, gpus=4).spawn("teller", Teller)
    view = teller.slice(gpus=slice(1, 4, 2)).rename(hosts="dp", gpus="tp")
    seen = view.now.call().get(20).item(dp=1, tp=1)
    assert seen["point"] == {"dp": 1, "tp": 1} and seen["rank"] == 3 and seen["size"] == {"dp": 2, "tp": 2}
    assert seen["spawned_at"] == {"hosts": 1, "gpus": 3}
    one = teller.slice(hosts=1, gpus=1).now.call_one().get(20)
    assert (one["point"], one["rank"], one["size"]) == ({}, 0, {})
    assert one["spawned_at"] == {"hosts": 1, "gpus": 1}
    chosen = teller.slice(hosts=1, gpus=slice(1, 2)).now.choose().get(20)
    assert chosen["spawned_at"] == {"hosts": 1, "gpus": 1}


def test_an_actor_on_a_slice_counts_in_the_slice() -> None:
    teller = proc_mesh(hosts=2, gpus=2).slice(hosts=1).spawn("teller", Teller)
    assert teller.at_init.call().get(20).values() == [({"gpus": index}, {"gpus": 2}, "teller") for index in range(2)]
    assert [seen["rank"] for seen in teller.now.call().get(20).values()] == [0, 1]


def test_in_async_tasks_and_across_awaits() -> None:
    mesh = proc_mesh(n=2)
    tasks = mesh.spawn("echo", AsyncEcho).where_in_tasks.call().get(20)
    assert tasks.values() == [[({"n": rank}, "echo")] * 2 for rank in range(2)]
    teller = mesh.spawn("teller", Teller).rename(n="m")
    assert teller.across_messages.call().get(20).values() == [({"m": rank}, {"m": rank}) for rank in range(2)]


def test_in_threads_of_user_code() -> None:
    assert proc_mesh(n=1).spawn("teller", Teller).in_a_thread.call_one().get(20) == [{}, {"n": 1}]


def test_in_the_script() -> None:
    assert current_size() == {} and current_rank().rank == 0 and dict(current_rank()) == {}
    assert context().message_rank == current_rank()
    script = context().actor_instance
    assert (script.name, script.creator, str(script), current_actor_name()) == ("root", None, "<root>", "<root>")


class Maker(Actor):
    @endpoint
    def make(self) -> tuple[str, str]:
        inner = proc_mesh(n=1).spawn("inner", Teller)
        return current_actor_name(), inner.full_name.call_one().get(20)


def test_the_full_name_tells_who_made_an_actor() -> None:
    mesh = proc_mesh(f=2)
    name = f"<root>.<{__name__}.Teller the_name"
    names = mesh.spawn("the_name", Teller).full_name.call().get(20).values()
    assert names == [f"{name}{{'f': {rank}/2}}>" for rank in (0, 1)]
    maker, inner = mesh.slice(f=1).spawn("maker", Maker).make.call_one().get(20)
    assert maker == f"<root>.<{__name__}.Maker maker{{}}>"
    assert inner == f"{maker}.<{__name__}.Teller inner{{'n': 0/1}}>"
