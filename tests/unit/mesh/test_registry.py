"""What the root knows of ranks, and whom it tells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from meshrt.errors import ProtocolError
from meshrt.hooks.fate import Fate
from meshrt.mesh.future import Settled
from meshrt.mesh.record import MeshRecord, Owner
from meshrt.mesh.registry import OwnMesh, Registry
from meshrt.selection import Shape, Slice
from meshrt.transport.driver import Driver
from meshrt.wire.addresses import HostAddress
from tests.unit.mesh import root_fakes
from tests.unit.mesh.root_fakes import FakeAgent
from tests.unit.transport.fake_rank import SECRET, FakeTree

DIED = Fate("died", signal=9)
SCRIPT = OwnMesh(lambda: HostAddress(1, 0, b"/d", (("10.0.0.1", 4711),)), lambda *_connection: None, [])


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver(SECRET, FakeTree())
    yield made
    made.close()


def record(driver: Driver, name: str = "m", count: int = 4, agents: int = 2) -> MeshRecord:
    hosts = [FakeAgent(f"h{index}") for index in range(agents)]
    return root_fakes.record(driver, *hosts, name=name, count=count)


@pytest.fixture
def registry(driver: Driver) -> Registry:
    made = Registry()
    made.add(record(driver))
    return made


def test_hosts_take_contiguous_blocks(driver: Driver) -> None:
    for count, agents, expected in [(4, 2, "0011"), (5, 2, "00011"), (2, 4, "02"), (7, 3, "0001122")]:
        found = record(driver, count=count, agents=agents)
        assert "".join(agent.host[1:] for agent in found.agent_of) == expected
        assert len(found.agents) == len(set(expected))


def test_births_are_told_once_and_at_once_to_latecomers(registry: Registry) -> None:
    told: list[str] = []
    registry.when_born("m", 1, lambda _host: told.append("early"))
    assert not told
    for callback in registry.born("m", 1, 4711):
        callback()
    registry.when_born("m", 1, lambda _host: told.append("late"))
    registry.when_born("forgotten", 0, lambda _host: told.append("unknown"))
    assert told == ["early", "late", "unknown"]
    assert registry.born("m", 1, 4711) == []


def test_a_death_is_told_to_those_who_wait_for_the_birth_and_to_those_who_watch(registry: Registry) -> None:
    told: list[object] = []
    registry.when_born("m", 2, lambda _host: told.append("born"))
    assert not registry.watch("m", 2, told.append)
    for callback in registry.gone("m", 2, DIED):
        callback()
    assert told == ["born", DIED]
    assert registry.gone("m", 2, Fate("host")) == []  # the first word counts
    assert registry.watch("m", 2, told.append) and told[-1] == DIED
    assert registry.meshes["m"].alive() == [0, 1, 3]


def test_of_what_was_forgotten_it_is_said_that_it_was_stopped(registry: Registry) -> None:
    told: list[Fate] = []
    assert registry.watch("long ago", 0, told.append)
    assert told[0].kind == "stopped"
    registry.own["this process"] = SCRIPT
    assert not registry.watch("this process", 0, told.append)


def test_who_asks_when_a_rank_listens_is_told_where(registry: Registry) -> None:
    registry.own["this process"] = SCRIPT
    told: list[object] = []
    for mesh_id, rank in [("this process", 0), ("m", 3), ("forgotten", 0), ("forgotten", 77)]:
        registry.when_born(mesh_id, rank, told.append)
    assert told == [SCRIPT.address(), None, None]
    for callback in registry.born("m", 3, 4711):
        callback()
    assert told[3] == registry.meshes["m"].agent_of[3].address


def test_the_ranks_of_an_agent(registry: Registry) -> None:
    mesh = registry.meshes["m"]
    registry.gone("m", 3, DIED)
    assert registry.of_agent(mesh.agents[1]) == [(mesh, [2])]


def test_stopped_meshes_are_forgotten_when_there_are_many(registry: Registry, driver: Driver) -> None:
    for index in range(Registry.KEPT + 50):
        mesh = record(driver, f"m{index}", count=1, agents=1)
        mesh.stopped = Settled(driver, "stopping")
        mesh.stopped.resolve(None)
        registry.add(mesh)
    assert len(registry.meshes) <= Registry.KEPT + 2
    assert "m" in registry.meshes and "m0" not in registry.meshes and f"m{Registry.KEPT + 49}" in registry.meshes
    assert [mesh.mesh_id for mesh in registry.running()] == ["m"]


def test_an_actor_is_there_while_some_rank_has_it(registry: Registry) -> None:
    def named() -> list[str]:
        (found,) = registry.describe()
        return list(found.actors)

    for name in ("a", "b"):
        for rank in range(4):
            registry.actor("m", rank, name, here=True)
    registry.gone("m", 3, DIED)
    for rank in range(2):
        registry.actor("m", rank, "a", here=False)
    assert named() == ["a", "b"]
    registry.actor("m", 2, "a", here=False)
    assert named() == ["b"]  # the rank that has died has ended it too
    registry.actor("m", 1, "a", here=True)
    assert named() == ["a", "b"]
    for rank in range(3):
        registry.gone("m", rank, DIED)
    assert named() == ["b"]  # nobody has stopped it: it is to be seen how its ranks have ended
    registry.actor("long ago", 0, "a", here=True)


def ranks_of(registry: Registry, name: str = "a") -> list[int]:
    (found,) = registry.describe()
    return list(found.actors.get(name, ()))


def test_an_actor_is_on_the_ranks_of_the_view_that_it_was_spawned_on(registry: Registry) -> None:
    view = Shape(("pp",), Slice(offset=1, sizes=(2,), strides=(2,)))
    registry.actor_spawned("m", "a", view)
    assert ranks_of(registry) == [1, 3]  # no rank has begun it yet
    registry.actor("m", 3, "a", here=True)
    (found,) = registry.describe()
    assert found.actors == {"a": {1: view, 3: view}} and found.actors_of(1) == ["a"] and found.actors_of(0) == []
    registry.gone("m", 3, DIED)
    assert ranks_of(registry) == [1, 3]  # how its rank has ended is to be seen
    registry.actor("m", 1, "a", here=True)
    registry.actor_spawned("m", "a", Shape(("pp",), Slice(offset=0, sizes=(1,), strides=(1,))))
    assert ranks_of(registry) == [0, 1, 3]
    registry.actor("m", 1, "a", here=False)
    registry.actor("m", 0, "a", here=True)
    assert ranks_of(registry) == [0, 3]


def test_an_actor_that_is_spawned_elsewhere_has_left_its_ranks(registry: Registry) -> None:
    first, second = (Shape((), Slice(offset=rank, sizes=(), strides=())) for rank in (1, 2))
    registry.actor_spawned("m", "a", first)
    registry.actor("m", 1, "a", here=True)
    registry.actor("m", 1, "a", here=False)
    registry.actor_spawned("m", "a", second)
    registry.actor("m", 2, "a", here=True)
    assert ranks_of(registry) == [2]
    registry.actor_spawned("m", "a", first)  # the rank has not begun it again yet
    assert ranks_of(registry) == [1, 2]


def test_the_view_may_come_after_the_first_rank(registry: Registry) -> None:
    registry.actor("m", 1, "a", here=True)
    assert ranks_of(registry) == [1]
    registry.actor_spawned("m", "a", Shape(("pp",), Slice(offset=0, sizes=(2,), strides=(1,))))
    assert ranks_of(registry) == [0, 1]
    with pytest.raises(ProtocolError, match="not a part of mesh m"):
        registry.actor_spawned("m", "a", Shape.from_extent({"n": 5}))


def test_a_rank_that_is_started_again_has_the_actors_that_it_is_to_have(registry: Registry) -> None:
    for name in ("a", "b"):
        registry.actor_spawned("m", name, registry.meshes["m"].shape)
        for rank in range(4):
            registry.born("m", rank, 100 + rank)
            registry.actor("m", rank, name, here=True)
    registry.restarted("m", 2, DIED, {"a"})
    assert ranks_of(registry, "a") == [0, 1, 2, 3] and ranks_of(registry, "b") == [0, 1, 3]
    assert registry.meshes["m"].actors_of(2) == [] and registry.meshes["m"].actors["a"].had_by(2)


def test_the_description_is_plain_data(registry: Registry) -> None:
    registry.born("m", 0, 4711)
    registry.gone("m", 3, DIED)
    (found,) = registry.describe()
    assert found.pids == {0: 4711} and found.alive == (0, 1, 2)
    assert found.ended[3] == DIED and found.shape == registry.meshes["m"].shape
    assert found.hosts == {0: "h0", 1: "h0", 2: "h1", 3: "h1"}


def test_what_ranks_have_made_ends_with_what_the_script_has_made(registry: Registry, driver: Driver) -> None:
    inner, other = record(driver, "inner"), record(driver, "other")
    registry.add(other)
    inner.owner = Owner("m", 2, "trainer")
    registry.add(inner)
    assert [[mesh.mesh_id for mesh in meshes] for meshes in registry.running_by_script()] == [["other"], ["m", "inner"]]
    inner.begin_stop(driver)
    assert registry.stopped_how("inner") == ""
    registry.meshes["m"].begin_stop(driver)
    assert registry.stopped_how("inner") == "stopped"
    registry.meshes["m"].abandoned = True
    assert registry.stopped_how("inner") == "abandoned" and registry.stopped_how("other") == ""
