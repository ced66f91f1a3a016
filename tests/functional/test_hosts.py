"""``this_host()`` and ``this_proc()``."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time

import pytest

from meshrt import Actor, HostMesh, UsageError, current_rank, endpoint, host_mesh, proc_mesh, this_host, this_proc
from meshrt.mesh.program import start_root
from meshrt.mesh.registry import Registry
from tests.support.actors import Clock, Echo
from tests.support.waiting import wait_until


class Nested(Actor):
    """Uses its own process as a mesh."""

    @endpoint
    def spawn_beside(self) -> tuple[int, int, bool]:
        beside = this_proc().spawn("beside", Echo, "hi").get(20)
        pid: int = beside.pid.call_one().get(20)
        rank: int = beside.rank.call_one().get(20)
        return pid, rank, beside.greet.call_one("you").get(20) == "hi you!"

    @endpoint
    def own_rank(self) -> int:
        return current_rank().rank


def test_this_host_has_no_dimensions() -> None:
    assert isinstance(this_host(), HostMesh)
    assert this_host().sizes == {} and len(this_host()) == 1
    assert this_host() == this_host() and len({this_host(), this_host()}) == 1


def test_spawn_procs_takes_the_dimensions_per_host() -> None:
    mesh = this_host().spawn_procs(per_host={"gpus": 2, "lanes": 2}, name="procs", env={"A": "1"})
    assert mesh.name == "procs" and mesh.sizes == {"gpus": 2, "lanes": 2}
    echo = mesh.spawn("echo", Echo)
    assert echo.apply.call(os.getenv, "A").get().values() == ["1"] * 4


def test_spawn_procs_without_dimensions_is_one_process() -> None:
    assert len(this_host().spawn_procs()) == 1
    with pytest.raises(UsageError, match="gpus=0"):
        this_host().spawn_procs(per_host={"gpus": 0})


def test_meshes_that_were_stopped_long_ago_are_stopped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root has forgotten most of them; the handles are their own memory, and the host keeps those that live."""
    monkeypatch.setattr(Registry, "KEPT", 2)
    host = this_host()
    meshes = []
    with host:
        for _ in range(6):
            meshes.append(host.spawn_procs({"n": 1}).get(20))
            meshes[-1].stop()
        living = host.spawn_procs({"n": 1}).get(20)
        assert host._started == [living]
        for mesh in meshes:
            assert mesh.stop().get(20) is None
    assert start_root().registry.running() == []


def test_a_mesh_that_cannot_be_stopped_does_not_keep_the_others() -> None:
    """One was stopped through another handle and forgotten since."""
    host = this_host()
    forgotten = host.spawn_procs({"n": 1}, name="forgotten").get(20)
    host.spawn_procs({"n": 1}).get(20)
    forgotten.rename(n="m").stop()
    registry = start_root().registry
    del registry.meshes[forgotten.mesh_id]
    with pytest.raises(UsageError, match="forgotten is not owned by this process"):
        host.stop()
    assert registry.running() == [] and host.stop().get(20) is None


def test_its_meshes_are_stopped_by_one_future() -> None:
    async def stop() -> bool:
        host = this_host()
        meshes = [await host.spawn_procs({"n": 1}) for _ in range(2)]
        waits = meshes[0].spawn("echo", Echo).apply.call(time.sleep, 0.2)
        stopped = host.stop()
        assert not stopped.done()
        await stopped
        return waits.done() and all(mesh._has_stopped() for mesh in meshes)

    assert asyncio.run(stop())
    assert start_root().registry.running() == []


def test_this_proc_of_the_script_is_the_script() -> None:
    clock = this_proc().spawn("clock", Clock, 5).get(20)
    assert clock.tick.call_one().get(20) == 6
    echo = this_proc().spawn("echo", Echo)
    assert echo.pid.call_one().get(20) == os.getpid()
    assert echo.apply.call_one(threading.get_ident).get(20) != threading.get_ident()
    assert this_proc() == this_proc() and this_proc().sizes == {}


def test_ranks_call_an_actor_of_the_script() -> None:
    clock = this_proc().spawn("clock", Clock)

    def tick_there() -> int:
        count: int = clock.tick.call_one().get(20)
        return count

    echo = proc_mesh(n=3).spawn("echo", Echo)
    counts = echo.apply.call(tick_there).get(30).values()
    assert sorted(counts) == [1, 2, 3]


def test_this_proc_inside_a_rank_is_that_rank() -> None:
    mesh = proc_mesh(n=2)
    nested = mesh.spawn("nested", Nested)
    pids = mesh.spawn("echo", Echo).pid.call().get(20).values()
    answers = nested.spawn_beside.call().get(30).values()
    assert [pid for pid, _, _ in answers] == pids
    assert all(greeted for _, _, greeted in answers)


class Maker(Actor):
    """Makes meshes of its own, and stops all but the last one."""

    @endpoint
    def make(self, count: int) -> str:
        for _ in range(count):
            self.mesh = proc_mesh(n=1).get(20)
            self.mesh.stop()
        self.mesh = proc_mesh(n=1, name="living").get(20)
        return self.mesh.mesh_id


def test_a_rank_whose_meshes_are_forgotten_ends_those_that_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "KEPT", 2)
    mesh = proc_mesh(n=1)
    living = mesh.spawn("maker", Maker).make.call_one(6).get(60)
    mesh.stop()
    registry = start_root().registry
    wait_until(lambda: registry.meshes[living].stopped is not None, 20)
    registry.meshes[living].stopped.get(20)  # type: ignore[union-attr]  # it has just been waited for
    assert registry.running() == []


def test_hosts_of_a_mesh_are_a_mesh() -> None:
    with proc_mesh(hosts=4, gpus=2, name="first") as mesh:
        hosts = mesh.hosts
        assert hosts.sizes == {"hosts": 4} and set(hosts.names) == {socket.gethostname()}
        some = hosts.slice(hosts=slice(1, 3))
        second = some.spawn_procs(per_host={"lanes": 3}, name="second")
        assert (
            second.sizes == {"hosts": 2, "lanes": 3} and len(second.spawn("echo", Echo).apply.call(len, "a").get()) == 6
        )
        assert hosts.slice(hosts=0).spawn_procs().sizes == {}
        assert mesh.slice(hosts=2, gpus=1).hosts.sizes == {}
        with pytest.raises(UsageError, match="hosts is a dimension of the hosts already"):
            hosts.spawn_procs(per_host={"hosts": 2})
    assert proc_mesh(dp=3).hosts.sizes == {}
    with host_mesh(2) as placed:
        assert placed.spawn_procs(per_host={"gpus": 2}).sizes == {"hosts": 2, "gpus": 2}
        assert placed.slice(hosts=1).spawn_procs(per_host={"gpus": 2}).sizes == {"gpus": 2}


def test_a_rank_starts_processes_on_hosts_that_it_is_given() -> None:
    mesh = proc_mesh(hosts=2)
    echo = mesh.spawn("echo", Echo)
    assert echo.slice(hosts=0).apply.call_one(_count_beside, mesh.hosts).get(60) == (4, 1)


def _count_beside(hosts: HostMesh) -> tuple[int, int]:
    with hosts.spawn_procs(per_host={"gpus": 2}) as mesh, this_host().spawn_procs() as own:
        return len(mesh.get(30)), len(own.get(30))
