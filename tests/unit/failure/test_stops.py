"""Which errors come from a stop."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import pytest
from msgspec.structs import replace

from meshrt.errors import MeshStopped, ProcessDied, RankPlace
from meshrt.failure.causes import STOPPED
from meshrt.failure.record import ExceptionFacts, Reference
from meshrt.failure.stops import Stops
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import RootServices
from meshrt.hooks.snapshot import MeshFacts
from meshrt.selection import Shape
from tests.unit.failure.records import MS, raised

PLACE = RankPlace("log", "logger", 0)
ABOUT = Reference("", "log", 0)


class Services:
    """The mesh ``log`` was stopped in some way; the mesh ``m`` uses it."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.excused: set[str] = set()
        self.log = MeshFacts("log", "log", Shape.from_extent({"n": 1}))

    def stopped_how(self, _mesh_id: str) -> str:
        return self.how

    def mesh(self, mesh_id: str) -> MeshFacts | None:
        return self.log if mesh_id == "log" else None


def stops(services: Services) -> Stops:
    return Stops(cast(RootServices, services))


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("stopped", "log was stopped by the script"),
        ("left", "log was stopped by the script"),
        ("abandoned", "logger of log was stopped"),
        ("", "logger of log was stopped"),
    ],
)
def test_an_error_about_a_stop_has_no_other_cause(how: str, text: str) -> None:
    known = stops(Services(how))
    error = MeshStopped(PLACE, endpoint="write")
    assert known.only_stopped(error) == text and not list(known.references(error))


def test_a_rank_that_died_is_a_cause_of_its_own() -> None:
    known = stops(Services("stopped"))
    died = ProcessDied(PLACE, exit_code=None, signal=9)
    died.__cause__ = MeshStopped(PLACE)
    assert [about for _, about in known.references(died)] == [ABOUT] and known.only_stopped(died) == ""


def test_what_a_rank_raises_because_the_script_has_left_a_mesh_is_excused() -> None:
    services = Services("left")
    known = stops(services)
    record = raised(1, 5, STOPPED, about=ABOUT)
    assert known.excuse(record)
    assert services.excused == {record.id} and known.excused == {record.id: "log was stopped"}
    services.log = replace(services.log, over=1 * MS)
    assert known.excuse(raised(1, 900, STOPPED, about=ABOUT))
    assert not known.excuse(raised(1, 1100, STOPPED, about=ABOUT)), "it has begun to use a mesh that had ended"
    services.how = "stopped"
    assert not known.excuse(record)
    assert not known.excuse(raised(1, 5))


PEER = "Connection closed by peer [127.0.0.1]:42900"
ENDED = {0: Fate("stopped", signal=15, low=3 * MS, high=3 * MS)}


def ended(rank: int = 0, **facts: Any) -> dict[int, Fate]:
    return {rank: dataclasses.replace(ENDED[0], **facts)}


@pytest.mark.parametrize(
    ("facts", "by_signal", "message", "is_excused"),
    [
        ({"stopping": 2 * MS}, True, PEER, True),
        ({"stopping": 6 * MS}, True, PEER, False),  # raised before
        ({}, True, PEER, False),  # the script has caught Ctrl-C, and goes on
        ({"stopping": 2 * MS}, False, PEER, False),  # it is stopped because a rank has failed
        ({"stopping": 2 * MS, "ended": ended(low=0, high=0)}, False, PEER, False),
        ({"joined": True, "ended": ended()}, False, PEER, True),  # its launcher has ended a peer
        ({"joined": True, "ended": ended(rank=1)}, False, PEER, False),  # itself
        ({"joined": True, "ended": ended(low=6 * MS, high=6 * MS)}, False, PEER, False),  # later
        ({"joined": True, "ended": ended(low=0)}, False, PEER, False),  # nobody knows when
        ({"joined": True, "ended": ended(kind="died", signal=9)}, False, PEER, False),
        ({"joined": True, "stopping": 2 * MS, "ended": ended()}, True, "no room for the checkpoint", False),
        ({"script": False, "joined": True, "stopping": 2 * MS, "ended": ended()}, True, PEER, False),
    ],
)
def test_a_script_loses_a_peer_that_a_signal_has_ended(
    facts: dict[str, Any], by_signal: bool, message: str, is_excused: bool
) -> None:
    services = Services("")
    services.log = replace(services.log, **{"script": True, **facts})
    record = raised(1, 5, "RuntimeError", message, mesh_id="log")
    assert record.exception is not None
    lost = ExceptionFacts("RuntimeError", PEER, relation="context")
    record = replace(record, exception=replace(record.exception, linked=(lost,)))
    assert stops(services).excuse(record, ended=by_signal) is is_excused
    assert services.excused == ({record.id} if is_excused else set())
