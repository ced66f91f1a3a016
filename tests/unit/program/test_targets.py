"""Which ranks are meant, without a debugger and with one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from meshrt.errors import SelectionError, UsageError
from meshrt.hooks.measured import Measured
from meshrt.hooks.services import RootServices
from meshrt.hooks.snapshot import MeshFacts
from meshrt.inspect.listing import rows_of
from meshrt.program.chosen import choose
from meshrt.program.places import Place
from meshrt.program.program import Program, program_of
from meshrt.program.states import NOT_STOPPED, PostMortem, State, Stop
from meshrt.selection import Shape

HERE = Place("/src/train.py", 7, "step")
SHAPE = Shape.from_extent({"hosts": 2, "gpus": 2})
HOSTS = {0: "h0", 1: "h0", 2: "h1", 3: "h1"}
MESH = MeshFacts("m1", "left", SHAPE, HOSTS, alive=(0, 1, 2, 3), actors=("trainer",), started=100.0)


class Services:
    """Meshes whose hosts may be silent."""

    def __init__(self, *meshes: MeshFacts) -> None:
        self.tables: dict[str, Any] = {}
        self.silent: list[str] = []
        self._meshes = meshes

    def meshes(self) -> Sequence[MeshFacts]:
        return self._meshes

    async def measure(self, *_asked: Any, work: bool) -> Measured:
        return Measured(silent=self.silent)


class Stops:
    """A debugger that has stopped some ranks."""

    def __init__(self, *keys: tuple[str, int, str, str], view: Shape | None = None) -> None:
        self._keys = keys
        self._view = view

    def threads(self) -> list[tuple[str, str, str]]:
        return [(mesh_id, actor, thread) for mesh_id, _, actor, thread in self._keys]

    def views(self, mesh_id: str, actor: str, thread: str) -> Mapping[int, Shape | None]:
        return {key[1]: self._view for key in self._keys if (key[0], *key[2:]) == (mesh_id, actor, thread)}

    def stop(self, mesh_id: str, rank: int, actor: str, thread: str) -> Stop:
        stopped = (mesh_id, rank, actor, thread) in self._keys
        return Stop(State("stopped", 110.0, HERE), HERE) if stopped else NOT_STOPPED

    def post_mortems(self) -> Sequence[PostMortem]:
        return ()


def program(*meshes: MeshFacts) -> Program:
    return program_of(cast(RootServices, Services(*meshes)))


def test_all_plug_ins_share_one() -> None:
    services = cast(RootServices, Services(MESH))
    assert program_of(services) is program_of(services) is not program_of(cast(RootServices, Services(MESH)))


def test_without_a_debugger_ranks_are_selected_by_what_else_is_known() -> None:
    targets = program(MESH).targets
    assert targets.select("trainer", "hosts=1").ranks == (2, 3)
    assert targets.select("", "running").ranks == targets.select("left", "").ranks == (0, 1, 2, 3)
    with pytest.raises(SelectionError):
        targets.select("trainer", "pp=1")
    with pytest.raises(UsageError, match="no actor 'trainr'; did you mean"):
        targets.select("trainr", "")


def test_what_a_debugger_has_stopped_can_be_selected_and_named() -> None:
    found = program(MESH)
    found.sources.stops = Stops(("m1", 1, "trainer", ""), ("m1", 2, "trainer", "loader"))
    targets = found.targets
    assert targets.select("trainer", "stopped").ranks == targets.select("", "at train.py:7").ranks == (1,)
    assert targets.select("trainer/loader", "").ranks == (2,)
    assert [actor.label for actor in targets.actors()] == ["trainer", "trainer/loader"]
    chosen = choose(targets, "", "")
    assert [chosen.doing("m1", rank).word for rank in range(4)] == ["running", "stopped", "stopped", "running"]


class Counted(Stops):
    """A debugger that counts how often it is asked for a stop."""

    asked = 0

    def stop(self, mesh_id: str, rank: int, actor: str, thread: str) -> Stop:
        self.asked += 1
        return super().stop(mesh_id, rank, actor, thread)


def test_states_are_looked_up_for_the_ranks_that_need_them_and_once() -> None:
    """A terminal attaches to one rank of a thousand, and a listing has a row for each."""
    found = program(MESH)
    found.sources.stops = stops = Counted(("m1", 1, "trainer", ""))
    targets = found.targets
    assert targets.select("trainer", "1").ranks == (1,)
    assert stops.asked == 0
    actor = targets.actor("trainer")
    stop = targets.stop(actor, 1)
    assert targets.state(actor, 1, stop) == stop.state
    assert stops.asked == 1
    assert [(row.rank, row.state, row.line) for row in rows_of(targets, "all", "trainer", "").rows] == [
        (0, "running", 0),
        (1, "stopped", 7),
        (2, "running", 0),
        (3, "running", 0),
    ]
    assert stops.asked == 5


def test_dims_of_the_view_through_which_ranks_were_called_can_be_used() -> None:
    found = program(MESH)
    found.sources.stops = Stops(("m1", 0, "trainer", ""), ("m1", 2, "trainer", ""), view=Shape.from_extent({"pp": 4}))
    assert found.targets.select("trainer", "pp=0:3").ranks == (0, 1, 2)


def test_of_several_meshes_the_one_that_has_stopped_is_meant() -> None:
    found = program(MESH, replace(MESH, mesh_id="m2", name="right"))
    with pytest.raises(UsageError, match="say trainer@left or trainer@right"):
        found.targets.actor("trainer")
    found.sources.stops = Stops(("m2", 0, "trainer", ""))
    assert found.targets.actor("trainer").mesh.mesh_id == "m2"


def test_ranks_of_a_host_that_is_silent_do_not_answer() -> None:
    services = Services(MESH)
    found = program_of(cast(RootServices, services))
    assert asyncio.run(found.looked()) is found.targets
    services.silent = ["h1"]
    targets = asyncio.run(found.looked())
    assert targets.select("", "not-answering").ranks == (2, 3)
    assert choose(targets, "", "").answering() == {"m1": [0, 1]}
    assert found.targets.select("", "running").ranks == (0, 1, 2, 3)


def test_more_ranks_than_one_answer_holds_are_refused() -> None:
    large = replace(MESH, shape=Shape.from_extent({"n": 5000}), alive=tuple(range(5000)))
    with pytest.raises(UsageError, match="5000 ranks are too many"):
        choose(program(large).targets, "", "")
    with pytest.raises(UsageError, match="no actor runs"):
        choose(program(replace(MESH, actors=())).targets, "", "running")
