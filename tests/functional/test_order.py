"""One message at a time, in the order in which one caller sent them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from meshrt import Actor, ActorMesh, endpoint, proc_mesh
from tests.support.actors import Clock, Journal

pytestmark = pytest.mark.one_program

CALLERS = 8
CALLS = 150


class Writer(Actor):
    """A caller in a rank: writes into somebody's journal."""

    @endpoint
    def write(self, journal: ActorMesh[Journal], who: int, count: int) -> None:
        for number in range(count):
            journal.note.broadcast((who, number))
        journal.read.call().get(30)


def in_order(entries: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Return the numbers of each caller, in the order in which they were served."""
    found: dict[int, list[int]] = {}
    for who, number in entries:
        found.setdefault(who, []).append(number)
    return found


@pytest.mark.parametrize("note", ["note", "note_async"])
def test_many_threads_each_in_its_own_order(note: str) -> None:
    journal = proc_mesh(n=2).spawn("journal", Journal).get(20)
    barrier = threading.Barrier(CALLERS)

    def send(who: int) -> None:
        barrier.wait(20)
        pending = [getattr(journal, note).call((who, number)) for number in range(CALLS)]
        for future in reversed(pending):
            future.get(40)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(send, range(CALLERS)))
    for entries, most_inside in journal.read.call().get(20).values():
        assert in_order(entries) == {who: list(range(CALLS)) for who in range(CALLERS)}
        assert most_inside == 1


def test_calls_and_broadcasts_of_one_caller_stay_in_order() -> None:
    journal = proc_mesh(n=1).spawn("journal", Journal)
    for number in range(0, 300, 3):
        journal.note.broadcast((0, number))
        journal.note.call_one((0, number + 1))
        journal.note_async.call((0, number + 2))
    entries, most_inside = journal.read.call_one().get(20)
    assert entries == [(0, number) for number in range(300)]
    assert most_inside == 1


def test_large_and_small_messages_of_one_caller_stay_in_order() -> None:
    """A large one is written piece by piece; the small ones behind it must not overtake it."""
    journal = proc_mesh(n=1).spawn("journal", Journal)
    for number in range(20):
        journal.note.broadcast((number, b"x" * (2 << 20) if number % 3 == 0 else b""))
    entries, _ = journal.read.call_one().get(40)
    assert [number for number, _ in entries] == list(range(20))


def test_ranks_as_callers_each_in_its_own_order() -> None:
    mesh = proc_mesh(n=3)
    journal = mesh.slice(n=0).spawn("journal", Journal).get(20)
    writers = mesh.spawn("writer", Writer)
    pending = [writers.slice(n=rank).write.call_one(journal, rank, 100) for rank in range(3)]
    for future in pending:
        future.get(40)
    entries, most_inside = journal.read.call_one().get(20)
    assert in_order(entries) == {rank: list(range(100)) for rank in range(3)}
    assert most_inside == 1


@pytest.mark.row("L2")
def test_a_thousand_calls_under_way_at_once() -> None:
    clock = proc_mesh(n=2).spawn("clock", Clock)
    pending = [clock.tick.call() for _ in range(1000)]
    assert pending[-1].get(40).values() == [1000, 1000]
    assert [future.get().values()[0] for future in pending] == list(range(1, 1001))
