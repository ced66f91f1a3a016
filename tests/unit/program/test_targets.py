"""Which ranks are meant, without a debugger and with one."""

from __future__ import annotations

import asyncio
import re
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
from meshrt.selection import Shape, Slice

HERE = Place("/src/train.py", 7, "step")
SHAPE = Shape.from_extent({"hosts": 2, "gpus": 2})
HOSTS = {0: "h0", 1: "h0", 2: "h1", 3: "h1"}
MESH = MeshFacts(
    "m1", "left", SHAPE, HOSTS, alive=(0, 1, 2, 3), actors={"trainer": dict.fromkeys(range(4), SHAPE)}, started=100.0
)


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


HEAD = Shape(("hosts",), Slice(offset=0, sizes=(2,), strides=(2,)))
STAGES = Shape(("pp",), Slice(offset=1, sizes=(2,), strides=(2,)))


def with_slices() -> MeshFacts:
    """A mesh with an actor on all ranks, one on a slice, and one on a slice whose dimension has another name."""
    views = {"head": HEAD, "stages": STAGES}
    return replace(
        MESH, actors={**MESH.actors, **{name: dict.fromkeys(view.ndslice, view) for name, view in views.items()}}
    )


def test_an_actor_on_a_slice_has_the_ranks_of_the_slice() -> None:
    targets = program(with_slices()).targets
    head, stages = targets.actor("head"), targets.actor("stages")
    assert list(targets.states(head)) == [0, 2] and targets.select("head", "").ranks == (0, 2)
    on_head = {"hosts=1": (2,), "gpus=0": (0, 2), "0:4": (0, 2), "all": (0, 2), "!0": (2,), "-2": (2,), "0 | 2": (0, 2)}
    on_stages = {"pp=1": (3,), "hosts=1": (3,), "pp=0 | hosts=1": (1, 3), "!pp=0": (3,), "1": (1,), "running": (1, 3)}
    assert {text: targets.select("head", text).ranks for text in on_head} == on_head
    assert {text: targets.select("stages", text).ranks for text in on_stages} == on_stages
    assert [shape.coordinates(rank) for shape, rank in [(stages.shape_at(3), 3), (head.shape_at(2), 2)]] == [
        {"pp": 1},
        {"hosts": 1, "gpus": 0},
    ]


@pytest.mark.parametrize(
    ("actor", "text", "why"),
    [
        ("head", "1", "rank 1 is not a rank of head, which is on ranks 0,2"),
        ("head", "0, 3", "rank 3 is not a rank of head, which is on ranks 0,2"),
        ("head", "gpus=1", "this selects no rank of head, which is on ranks 0,2"),
        ("head", "stopped", "this selects no rank of head, which is on ranks 0,2"),
        ("stages", "pp=0 & stopped", "this selects no rank of stages, which is on ranks 1,3"),
        ("stages", "pp=2", "pp=2 does not exist: pp has size 2"),
        ("stages", "tp=2", "no dimension 'tp' in {pp=2}"),
    ],
)
def test_ranks_that_do_not_have_the_actor_are_refused(actor: str, text: str, why: str) -> None:
    with pytest.raises(SelectionError, match=f"^{re.escape(why)}"):
        program(with_slices()).targets.select(actor, text)


def test_without_an_actor_all_that_have_such_ranks_are_meant_and_ranks_without_an_actor() -> None:
    mesh = with_slices()
    targets = program(mesh).targets
    assert {each.actor.name: each.ranks for each in targets.everywhere("", "1, 2")} == {
        "trainer": (1, 2),
        "head": (2,),
        "stages": (1,),
    }
    only_head = program(replace(mesh, actors={"head": mesh.actors["head"]})).targets
    assert [(each.actor.name, each.ranks) for each in only_head.everywhere("", "1:", bare=True)] == [
        ("head", (2,)),
        ("", (1, 3)),
    ]
    assert choose(only_head, "", "hosts=0").targets == {"m1": [0, 1]}
    with pytest.raises(SelectionError, match="rank of head, which is on ranks 0,2"):
        only_head.everywhere("", "1")
    assert only_head.names_of_ranks("m1") == {0: "head", 1: "left", 2: "head", 3: "left"}


def test_the_error_of_a_selection_is_about_the_largest_mesh() -> None:
    """Of a singleton it would say that there is one rank."""
    one = Shape.from_extent({"n": 1})
    single = MeshFacts("m0", "store", one, {0: "h0"}, alive=(0,), actors={"store": {0: one}}, started=100.0)
    for meshes in ((single, MESH), (MESH, single)):
        with pytest.raises(SelectionError, match="there are 4 ranks"):
            program(*meshes).targets.everywhere("", "7")


def test_a_selection_is_base_ranks_by_mesh() -> None:
    mesh = with_slices()
    other = MeshFacts("m2", "right", Shape.from_extent({"n": 2}), {0: "h0", 1: "h0"}, alive=(0, 1))
    targets = program(mesh, other).targets
    assert targets.by_mesh("", "") == {"m1": [0, 1, 2, 3], "m2": [0, 1]}
    assert targets.by_mesh("", "1:3") == {"m1": [1, 2], "m2": [1]}
    assert targets.by_mesh("head", "") == {"m1": [0, 2]}
    assert targets.by_mesh("stages", "pp=1") == {"m1": [3]}
    with pytest.raises(UsageError, match="no actor 'tail'"):
        targets.by_mesh("tail", "")


def test_dims_of_the_spawn_stay_where_a_call_has_others() -> None:
    found = program(with_slices())
    found.sources.stops = Stops(("m1", 3, "stages", ""), view=Shape(("tp",), Slice(offset=1, sizes=(2,), strides=(2,))))
    for text in ("pp=1", "tp=1", "stopped & pp=1", "hosts=1"):
        assert found.targets.select("stages", text).ranks == (3,), text
    with pytest.raises(SelectionError, match="no dimension 'xp'"):
        found.targets.select("trainer", "stopped & xp=1")


def test_of_several_meshes_the_one_that_has_stopped_is_meant() -> None:
    found = program(MESH, replace(MESH, mesh_id="m2", name="right"))
    with pytest.raises(UsageError, match="name one: trainer@left or trainer@right"):
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
    with pytest.raises(UsageError, match="no rank runs"):
        choose(program().targets, "", "running")
