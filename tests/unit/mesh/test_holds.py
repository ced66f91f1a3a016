"""Deadlines are suspended while a person holds any rank; every rank is told when that begins and ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshrt.hooks.fate import Fate
from meshrt.mesh.holds import Holds
from meshrt.mesh.registry import Registry
from meshrt.transport.driver import Driver
from meshrt.wire.operations import Held, Hold
from tests.unit.mesh.root_fakes import FakeAgent, record
from tests.unit.transport.fake_rank import SECRET, FakeTree


class Bench:
    """A mesh of two ranks, and what they are told."""

    def __init__(self) -> None:
        self.driver = Driver(SECRET, FakeTree())
        self.registry = Registry()
        self.registry.add(record(self.driver, FakeAgent()))
        self.told: list[tuple[int, bool]] = []
        self.holds = Holds(self.registry, self.driver, self._send)

    def _send(self, mesh_id: str, rank: int, hold: Hold) -> None:
        assert mesh_id == "m"
        self.told.append((rank, hold.held))

    def change(self, rank: int, *, held: bool) -> None:
        self.holds.change("m", rank, Held(held))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.driver.close()


def test_all_are_told_of_the_first_hold_and_of_the_last_one(bench: Bench) -> None:
    bench.change(0, held=True)
    assert bench.told == [(0, True), (1, True)]
    assert bench.holds.any() and bench.holds.of("m", 0) and not bench.holds.of("m", 1)
    bench.change(0, held=True)  # another thread of it
    bench.change(1, held=True)
    bench.change(0, held=False)
    bench.change(1, held=False)
    assert len(bench.told) == 2 and bench.holds.of("m", 0)
    bench.change(0, held=False)
    assert bench.told[2:] == [(0, False), (1, False)] and not bench.holds.any()


def test_one_that_is_born_meanwhile_is_told(bench: Bench) -> None:
    bench.holds.born("m", 1)
    assert bench.told == []
    bench.change(0, held=True)
    bench.holds.born("m", 1)
    assert bench.told[2:] == [(1, True)]


def test_one_that_ends_is_held_no_longer(bench: Bench) -> None:
    bench.change(0, held=True)
    bench.registry.gone("m", 0, Fate("died"))
    bench.holds.gone("m", 0)
    bench.holds.gone("m", 0)
    assert bench.told[2:] == [(1, False)] and not bench.holds.any()
