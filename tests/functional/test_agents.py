"""A mesh over several host agents, each standing for a host."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from meshrt import ActorMesh, HostLost, LocalEngine, ProcessDied, UsageError, proc_mesh
from meshrt.mesh.engine import Placed, Program, Request
from tests.support.actors import AsyncEcho, Echo, Gate
from tests.support.waiting import wait_until


def parents(echo: ActorMesh[Echo]) -> list[int]:
    """Return the agent of each rank."""
    return [psutil.Process(pid).ppid() for pid in echo.pid.call().get(20).values()]


@pytest.mark.slow
@pytest.mark.parametrize("agents", [1, 2, 4])
def test_hosts_take_blocks_of_the_leading_dimension(agents: int) -> None:
    echo = proc_mesh(hosts=4, gpus=2, engine=LocalEngine(agents=agents)).spawn("echo", Echo)
    assert echo.rank.call().get(30).values() == list(range(8))
    found = parents(echo)
    assert len(set(found)) == agents
    assert [found.index(agent) for agent in found] == [rank // (8 // agents) * (8 // agents) for rank in range(8)]


def test_calls_views_and_actors_cross_the_hosts() -> None:
    mesh = proc_mesh(hosts=2, gpus=2, engine=LocalEngine(agents=2))
    echo = mesh.spawn("echo", Echo).get(30)
    callers = mesh.spawn("callers", Echo)

    def ranks_elsewhere() -> list[int]:
        values: list[int] = echo.slice(gpus=1).rank.call().get(20).values()
        return values

    assert callers.apply.call(ranks_elsewhere).get(30).values() == [[0, 1]] * 4
    assert mesh.spawn("more", AsyncEcho).echo.call(b"x" * 3_000_000).get(30).slice(hosts=1).values()[0][:1] == b"x"
    mesh.stop()


def test_two_meshes_share_the_agents_of_an_engine() -> None:
    engine = LocalEngine(agents=2)
    first = proc_mesh(n=2, engine=engine).spawn("echo", Echo)
    second = proc_mesh(n=4, engine=engine).spawn("echo", Echo)
    plain = proc_mesh(n=1).spawn("echo", Echo)
    assert set(parents(first)) == set(parents(second))
    assert not set(parents(plain)) & set(parents(first))


def test_more_agents_than_ranks() -> None:
    echo = proc_mesh(n=2, engine=LocalEngine(agents=4)).spawn("echo", Echo)
    assert len(set(parents(echo))) == 2


def test_the_death_of_a_rank_names_its_host(tmp_path: Path) -> None:
    gate = proc_mesh(hosts=2, gpus=2, engine=LocalEngine(agents=2)).spawn("gate", Gate).get(30)
    pending = gate.wait_for.call(str(tmp_path / "never"))
    echo_pid = gate.initialized  # every rank runs
    assert echo_pid.done()
    victims = [process for process in psutil.Process().children(recursive=True) if process.name() == "mesh:mesh1:3"]
    assert len(victims) == 1
    victims[0].kill()
    with pytest.raises(ProcessDied) as caught:
        pending.get(20)
    error = caught.value
    assert error.rank == 3 and error.signal == signal.SIGKILL and error.place.host.endswith("~1")
    assert error.place.coordinates == (("hosts", 1), ("gpus", 1)) and error.place.pid == victims[0].pid


def test_the_death_of_an_agent_takes_its_ranks_and_no_others(tmp_path: Path) -> None:
    mesh = proc_mesh(hosts=2, gpus=2, engine=LocalEngine(agents=2))
    echo = mesh.spawn("echo", Echo)
    gate = mesh.spawn("gate", Gate).get(30)
    pids = echo.pid.call().get(20).values()
    agent = psutil.Process(pids[2]).parent()
    assert agent is not None
    pending = gate.wait_for.call(str(tmp_path / "never"))
    agent.kill()
    with pytest.raises(HostLost) as caught:
        pending.get(20)
    assert caught.value.place.host.endswith("~1")
    assert {caught.value.rank, *(place.rank for place in caught.value.others)} <= {2, 3}
    wait_until(lambda: not psutil.pid_exists(pids[2]) and not psutil.pid_exists(pids[3]))
    assert echo.slice(hosts=0).pid.call().get(20).values() == pids[:2]
    with pytest.raises(HostLost):
        echo.slice(hosts=1).pid.call().get(20)
    # A new mesh gets new agents.
    assert proc_mesh(n=2, engine=LocalEngine(agents=2)).spawn("echo", Echo).rank.call().get(30).values() == [0, 1]


def test_hosts_that_cannot_be_divided_among_the_agents_are_refused() -> None:
    with pytest.raises(UsageError, match="hosts=3 cannot be divided among the 2 hosts of the engine"):
        proc_mesh(hosts=3, gpus=2, engine=LocalEngine(agents=2))


class SlowEngine:
    """Takes its time, as one does that asks a scheduler for hosts."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.goes_on = threading.Event()

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> list[Placed]:
        self.asked.set()
        assert self.goes_on.wait(60)
        return LocalEngine().place(program, request, living)


@pytest.mark.nightly
def test_while_an_engine_places_agents_everything_else_goes_on(tmp_path: Path) -> None:
    echo = proc_mesh(n=2).spawn("echo", Echo).get(30)
    doomed = proc_mesh(n=2, engine=LocalEngine(agents=2))
    pids = doomed.spawn("echo", Echo).pid.call().get(20).values()
    pending = doomed.spawn("gate", Gate).wait_for.call(str(tmp_path / "never"))
    engine = SlowEngine()
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(lambda: proc_mesh(n=1, engine=engine).spawn("echo", Echo).rank.call().get(30).values())
        try:
            assert engine.asked.wait(20)
            agent = psutil.Process(pids[0]).parent()
            assert agent is not None
            agent.kill()  # its end is handled on the loop, which tells of it
            with pytest.raises(HostLost):
                pending.get(20)
            assert pool.submit(doomed.stop).result(20).done()
            assert echo.rank.call().get(20).values() == [0, 1]
        finally:
            engine.goes_on.set()
        assert slow.result(60) == [0]


def test_an_engine_inside_a_rank_is_refused() -> None:
    echo = proc_mesh(n=1).spawn("echo", Echo)

    def nested() -> str:
        try:
            proc_mesh(n=1, engine=LocalEngine(agents=2))
        except UsageError as error:
            return str(error)
        return "accepted"

    assert "engine= is only for the script" in echo.apply.call_one(nested).get(20)
