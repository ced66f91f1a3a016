"""``spawn``: an actor on every rank, how its ``__init__`` is waited for, and how it fails."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, ActorError, ActorMesh, MeshStopped, UsageError, current_rank, endpoint, proc_mesh
from meshrt.mesh.program import start_root
from meshrt.transport.kernel import stat_fields
from tests.support.actors import Clock, Echo, Failing, Gate
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program


class Slow(Actor):
    """Its ``__init__`` waits for a file."""

    def __init__(self, path: str) -> None:
        wait_until(Path(path).exists, 20)
        self.built_at = current_rank().rank

    @endpoint
    def built(self) -> int:
        return self.built_at


class AsyncClock(Clock):
    """As `Clock`, on an event loop."""

    @endpoint
    async def wait(self) -> None:
        await asyncio.sleep(0)


class Named(Actor):
    """Endpoints with names of what every mesh has, and a private one."""

    @endpoint
    def size(self) -> str:
        return "size of the actor"

    @endpoint
    async def get(self, key: str) -> str:
        return f"{key} on {current_rank().rank}"

    @endpoint(urgent=True)
    def stop(self) -> str:
        return "stopped the music"

    @endpoint
    def _hidden(self) -> str:
        return self.size()


class Renamed(Named):
    """A subclass with an endpoint of its own in the place of one."""

    @endpoint
    def size(self) -> str:
        return "another size"


class Importer(Actor):
    """Its module imports what scripts import, as most do."""

    @endpoint
    def loaded(self) -> list[str]:
        exec("from meshrt import HostMesh, ProcMesh, proc_mesh, shutdown_context, this_host", {})
        return list(sys.modules)


class NoActor:
    """Not a subclass of Actor."""


def thread_name() -> str:
    return threading.current_thread().name


def test_spawn_returns_before_init_has_run(tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    slow = mesh.spawn("slow", Slow, str(tmp_path / "go"))
    assert type(slow).__name__ == "ActorMesh"
    built = slow.built.call()  # waits behind __init__
    assert not slow.initialized.done() and not built.done()
    (tmp_path / "go").touch()
    assert slow.get(20) is slow
    assert slow.initialized.done() and slow.initialized.get() is None
    assert built.get(20).values() == [0, 1]


def test_await_gives_the_mesh() -> None:
    async def main() -> None:
        echo = await proc_mesh(n=2).spawn("echo", Echo, greeting="good day")
        assert (await echo.greet.call("Ann", mark="?")).values() == ["good day Ann?"] * 2

    asyncio.run(main())


def get_it(mesh: ActorMesh[Failing]) -> object:
    return mesh.get(20)


def get_initialized(mesh: ActorMesh[Failing]) -> object:
    return mesh.initialized.get(20)


def await_it(mesh: ActorMesh[Failing]) -> object:
    async def main() -> object:
        return await mesh

    return asyncio.run(main())


@pytest.mark.parametrize("wait", [get_it, get_initialized, await_it])
def test_a_failing_init_is_raised_with_its_rank_and_the_mesh_stays_usable(
    wait: Callable[[ActorMesh[Failing]], object],
) -> None:
    mesh = proc_mesh(hosts=2, gpus=2)
    failing = mesh.spawn("failing", Failing, (2,))
    with pytest.raises(ActorError) as caught:
        wait(failing)
    error = caught.value
    assert error.rank == 2 and error.place.coordinates == (("hosts", 1), ("gpus", 0)) and error.place.pid > 0
    assert error.endpoint == "__init__"
    assert "failing.__init__() raised on rank 2 (hosts=1, gpus=0)" in str(error)
    assert "ValueError: rank 2 does not start" in str(error)
    assert isinstance(error.exception, ValueError)

    assert mesh.spawn("echo", Echo).rank.call().get(20).values() == [0, 1, 2, 3]
    assert failing.slice(hosts=0).ok.call().get(20).values() == ["ok", "ok"]
    with pytest.raises(ActorError, match=r"rank 2 does not start \(earlier, in __init__\)"):
        failing.ok.call().get(20)


def test_a_failed_name_can_be_spawned_again() -> None:
    mesh = proc_mesh(n=2)
    with pytest.raises(ActorError):
        mesh.spawn("actor", Failing, (0, 1)).get(20)
    assert mesh.spawn("actor", Failing).ok.call().get(20).values() == ["ok", "ok"]


def test_actors_on_one_mesh_run_beside_each_other(tmp_path: Path) -> None:
    """The first is inside an endpoint for the whole time; the others answer."""
    mesh = proc_mesh(n=2)
    gate = mesh.spawn("gate", Gate)
    waiting = gate.wait_for.call(str(tmp_path / "open"))
    other_gate = mesh.spawn("other_gate", Gate)
    waiting_too = other_gate.wait_for.call(str(tmp_path / "open"))
    echo = mesh.spawn("echo", Echo)
    assert echo.rank.call().get(20).values() == [0, 1]
    assert not waiting.done() and not waiting_too.done()
    (tmp_path / "open").touch()
    assert waiting.get(20).values() == waiting_too.get(20).values() == [0, 1]


@pytest.mark.parametrize("again", range(4))
def test_the_actor_that_is_spawned_first_has_the_main_thread(again: int) -> None:
    """Nobody waits for a spawn: ranks that begin, and ranks that are there."""
    mesh = proc_mesh(n=2)
    if again % 2:
        mesh.initialized.get(20)
    actors = [mesh.spawn(name, Echo) for name in ("first", "second", "third")]
    names = [set(actor.apply.call(thread_name).get(20).values()) for actor in actors]
    assert names == [{"MainThread"}, {"meshrt-second"}, {"meshrt-third"}]


def test_the_same_name_twice_is_refused_and_the_first_goes_on() -> None:
    mesh = proc_mesh(n=2)
    clock = mesh.spawn("clock", Clock)
    clock.tick.call().get(20)
    with pytest.raises(UsageError, match=r"'clock' already runs on this mesh"):
        mesh.spawn("clock", Clock).get(20)
    assert clock.tick.call().get(20).values() == [2, 2]


@pytest.mark.parametrize("cls", [Clock, AsyncClock])
def test_the_handle_of_a_refused_spawn_does_not_reach_the_first(
    cls: type[Clock], capfd: pytest.CaptureFixture[str]
) -> None:
    mesh = proc_mesh(n=2)
    first, second = mesh.spawn("clock", cls, 10), mesh.spawn("clock", cls, 20)
    for refused in (second.tick.call, second.slice(n=1).tick.call_one, pickle.loads(pickle.dumps(second)).tick.call):
        with pytest.raises(UsageError, match=r"'clock' already runs on this mesh"):
            refused().get(20)
    second.stop().get(20)
    assert first.tick.call().get(20).values() == [11, 11]
    second.tick.broadcast()
    assert first.tick.call().get(20).values() == [12, 12]
    told = ""

    def is_told_of_both() -> bool:
        nonlocal told
        told += capfd.readouterr().err
        return "raised the same exception on rank" in told

    wait_until(is_told_of_both)
    assert "; no caller receives the exception\nmeshrt.errors.UsageError: an actor named 'clock' already runs" in told


def test_a_stopped_actor_can_be_spawned_again() -> None:
    mesh = proc_mesh(n=2)
    clock = mesh.spawn("clock", Clock)
    clock.tick.call().get(20)
    assert clock.stop().get(20) is None
    with pytest.raises(MeshStopped) as caught:
        clock.tick.call().get(20)
    assert caught.value.may_have_run is False
    again = mesh.spawn("clock", Clock, 100)
    assert again.tick.call().get(20).values() == [101, 101]


def test_a_stopped_actor_is_no_longer_listed_until_it_is_spawned_again() -> None:
    def listed() -> list[str]:
        (described,) = start_root().services.meshes()
        return list(described.actors)

    mesh = proc_mesh(n=2)
    clock = mesh.spawn("clock", Clock).get(20)
    mesh.spawn("echo", Echo).get(20)
    wait_until(lambda: listed() == ["clock", "echo"])
    clock.slice(n=0).stop()
    assert listed() == ["clock", "echo"]
    clock.slice(n=1).stop()
    wait_until(lambda: listed() == ["echo"])
    mesh.spawn("clock", Clock).get(20)
    wait_until(lambda: listed() == ["clock", "echo"])


def test_stop_of_an_actor_serves_what_was_sent_before() -> None:
    mesh = proc_mesh(n=1)
    clock = mesh.spawn("clock", Clock)
    ticks = [clock.tick.call_one() for _ in range(50)]
    clock.stop()
    assert [tick.get(20) for tick in ticks] == list(range(1, 51))


def test_an_actor_can_be_stopped_on_a_slice() -> None:
    clock = proc_mesh(n=3).spawn("clock", Clock).get(20)
    clock.slice(n=1).stop()
    with pytest.raises(MeshStopped) as caught:
        clock.tick.call().get(20)
    assert caught.value.rank == 1
    assert clock.slice(n=slice(0, 3, 2)).read.call().get(20).values() == [1, 1]


def test_wrong_arguments_of_init_fail_at_the_call() -> None:
    mesh = proc_mesh(n=1)
    with pytest.raises(TypeError, match=r"Clock\(\) got an unexpected keyword argument 'begin'"):
        mesh.spawn("clock", Clock, begin=3)  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match=r"Slow\(\) missing a required argument: 'path'"):
        mesh.spawn("slow", Slow)  # type: ignore[call-overload]  # wrong on purpose


def test_ranks_are_forked_one_right_after_the_other() -> None:
    """What the agent writes to between two forks is copied for each rank: a few pages only."""
    proc_mesh(n=1).spawn("echo", Echo).rank.call().get(20)
    (record,) = start_root().registry.running()
    agent = record.agent_of[0].pid
    before = minor_faults(agent)
    proc_mesh(n=32).spawn("echo", Echo).rank.call().get(20)
    assert (minor_faults(agent) - before) / 32 < 220


def minor_faults(pid: int) -> int:
    """Return how often a process has used memory that the kernel had to make or to copy first."""
    return int(stat_fields(pid)[7])


def test_ranks_import_no_root() -> None:
    """A module of actors may import all that a script uses."""
    loaded = proc_mesh(n=1).spawn("importer", Importer).loaded.call_one().get(20)
    assert "meshrt.mesh.program" in loaded and "meshrt.mesh.root" not in loaded


def test_what_is_no_actor_is_refused() -> None:
    mesh = proc_mesh(n=1)
    with pytest.raises(UsageError, match=r"'NoActor' must be a subclass of meshrt\.Actor"):
        mesh.spawn("thing", NoActor)  # type: ignore[call-overload]  # wrong on purpose
    for name in ("", "two words", "1st", "a/b", "x" * 65):
        with pytest.raises(UsageError, match="an actor is named with"):
            mesh.spawn(name, Echo)


def test_an_endpoint_may_have_any_name() -> None:
    mesh = proc_mesh(n=2)
    named, renamed = mesh.spawn("named", Named), mesh.spawn("renamed", Renamed)
    assert named.endpoint("size").call().get(20).values() == ["size of the actor"] * 2
    assert named.slice(n=1).endpoint(Named.get).call_one("x").get(20) == "x on 0"
    assert named.endpoint("stop").options(timeout=20).choose().get(20) == "stopped the music"
    assert named.endpoint("_hidden").call().get(20).values() == ["size of the actor"] * 2
    assert renamed.endpoint(Named.size).call().get(20).values() == ["another size"] * 2
    # The attribute stays the mesh's, and is listed once.
    handle: Any = pickle.loads(pickle.dumps(named))
    assert (handle.size(), handle.get(20), dir(handle).count("get")) == (2, handle, 1)
    with pytest.raises(TypeError, match=r"get\(\) missing a required argument: 'key'"):
        named.endpoint(Named.get).call()  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(AttributeError, match=r"Named has no endpoint 'gte'; did you mean 'get'\?"):
        named.endpoint("gte")
    handles: list[tuple[Any, str]] = [(handle, "call"), (handle.slice(n=0), "call_one")]
    for each, verb in handles:
        with pytest.raises(
            AttributeError, match=rf"^named.get is a method of the mesh; .* expected named.endpoint\('get'\).{verb}$"
        ):
            getattr(each.get, verb)("x")
    kind: Any = ActorMesh
    assert handle.get.__doc__ == kind.get.__doc__ and not hasattr(handle.get, "other")
    handle.stop()
    with pytest.raises(MeshStopped):
        named.endpoint("size").call().get(20)


def test_repr_and_dir_of_a_handle() -> None:
    echo = proc_mesh(hosts=2, gpus=2).spawn("echo", Echo)
    assert repr(echo) == "<ActorMesh echo: Echo on {hosts=2,gpus=2}>"
    assert {"greet", "slice", "stop"} <= set(dir(echo))
    assert repr(echo.greet) == "<endpoint echo.greet(name: str, *, mark: str = '!') -> str on {hosts=2,gpus=2}>"
