"""Which errors come from a stop."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest
from msgspec.structs import replace

from meshrt.errors import MeshStopped, ProcessDied, RankPlace
from meshrt.failure.causes import STOPPED
from meshrt.failure.record import Reference
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


@pytest.mark.parametrize(
    ("script", "interrupted", "stopping", "ended", "message", "is_excused"),
    [
        (True, True, 2 * MS, {}, PEER, True),
        (True, True, 0, {}, PEER, False),  # the script has caught Ctrl-C, and goes on
        (True, False, 2 * MS, {}, PEER, False),  # it is stopped because a rank has failed
        (True, False, 0, ENDED, PEER, True),  # its launcher has ended a peer
        (True, False, 0, {0: dataclasses.replace(ENDED[0], low=6 * MS)}, PEER, False),  # later
        (True, False, 0, {0: dataclasses.replace(ENDED[0], kind="died", signal=9)}, PEER, False),
        (True, True, 2 * MS, ENDED, "no room for the checkpoint", False),
        (False, True, 2 * MS, ENDED, PEER, False),
    ],
)
def test_a_script_loses_a_peer_that_a_signal_has_ended(
    script: bool, interrupted: bool, stopping: int, ended: dict[int, Fate], message: str, is_excused: bool
) -> None:
    services = Services("")
    services.log = replace(services.log, script=script, stopping=stopping, ended=ended)
    record = raised(1, 5, "RuntimeError", message, mesh_id="log")
    assert stops(services).excuse(record, interrupted=interrupted) is is_excused
    assert services.excused == ({record.id} if is_excused else set())
