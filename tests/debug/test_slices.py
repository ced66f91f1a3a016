"""Actors that were spawned on a part of a mesh: every tool shows them there, and nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from meshrt import Actor, ActorMesh, ProcMesh, current_rank, endpoint, proc_mesh
from tests.debug.actors import Debugee
from tests.debug.harness import Person, person
from tests.support.programs import run_python
from tests.support.waiting import wait_until

WAIT = 20


class Spawner(Actor):
    """Spawns an actor on a part of a mesh that it is handed."""

    @endpoint
    def spawn(self, mesh: ProcMesh) -> ActorMesh[Debugee]:
        return mesh.slice(hosts=1).rename(gpus="tp").spawn("inner", Debugee).get(WAIT)


@pytest.fixture
def mesh() -> Iterator[ProcMesh]:
    """A mesh with an actor on all ranks, one on a slice, and one on a slice with a dimension of another name."""
    with proc_mesh(name="work", hosts=2, gpus=2) as made:
        made.spawn("everywhere", Debugee).get(WAIT)
        made.slice(gpus=0).spawn("head", Debugee).get(WAIT)
        made.slice(gpus=1).rename(hosts="pp").spawn("stages", Debugee).get(WAIT)
        yield made


def refusal(me: Person, line: str) -> str:
    shown = me(line)
    assert not me.ok, line
    return shown.partition("\n")[0]


@pytest.mark.usefixtures("mesh")
def test_a_person_sees_an_actor_where_it_lives() -> None:
    with person() as me:
        me.until("status", "everywhere 0-3: idle", "head 0,2: idle", "stages 1,3: idle")
        assert me("p head type(self).__name__") == "[0,2] 'Debugee'\n" and me.ok
        assert me("p stages ranks(pp=1) 1") == me("p stages ranks(hosts=1) 1") == "[3] 1\n"
        assert "pp" in me("names").partition("dimensions: ")[2]
        for line in (
            *("p head ranks(1) 1", "cast head ranks(0,1) n", "attach head 1", "interrupt head ranks(1)"),
            *("logs head ranks(1)", "where head ranks(1)", "list all head ranks(1)", "break head.work ranks(1)"),
        ):
            assert refusal(me, line) == "rank 1 is not a rank of head, which is on ranks 0,2", line
        assert refusal(me, "p head ranks(gpus=1) 1") == "this selects no rank of head, which is on ranks 0,2"
        assert refusal(me, "p stages ranks(pp=2) 1").startswith("pp=2 does not exist: pp has size 2")
        rows = [line.split() for line in me("list all").splitlines() if line.startswith(("| head", "| stages"))]
        assert [(row[1], row[3]) for row in rows] == [("head", "0"), ("head", "2"), ("stages", "1"), ("stages", "3")]
        assert "{'pp': 1}" in me("list all stages")
        assert (
            me("where head").startswith("2 ranks of work")
            and me("logs stages") == "2 ranks of stages (1,3): no line printed\n"
        )
        assert "[1,3]" not in me("break head.work")  # nothing is pending where the actor does not live
        me("clear all")


def test_stops_are_announced_and_continued_where_the_actor_lives(mesh: ProcMesh) -> None:
    with person() as me:
        result = mesh.slice(gpus=0).spawn("other", Debugee).work.call()
        me.wait("other")
        me.announced("other", 2)
        assert not any("of other (" in notice for notice in me.terminal.notices)  # all of its ranks: none is listed
        assert me("cast other ranks(hosts=1) p rank") == "[2] 1\n"
        assert me("p other ranks(stopped) rank") == "[0] 0\n[2] 1\n"
        me("continue other")
        assert result.get(WAIT).values() == [20, 21]


@pytest.mark.slow
def test_each_rank_has_its_own_actors_in_tables(mesh: ProcMesh) -> None:
    def rows(*words: str) -> list[dict[str, object]]:
        done = run_python("-m", "meshrt", *words, "--json")
        assert done.returncode == 0, done
        found: list[dict[str, object]] = json.loads(done.stdout)["rows" if words[0] == "list" else "ranks"]
        return found

    head, stages = ["everywhere", "head"], ["everywhere", "stages"]
    assert [row["actors"] for row in sorted(rows("memory"), key=lambda row: str(row["rank"]))] == [
        head,
        stages,
        head,
        stages,
    ]
    assert [row["rank"] for row in rows("memory", "--ranks", "pp=1")] == [3]
    assert [row["rank"] for row in rows("list", "all", "head")] == [0, 2]
    done = run_python("-m", "meshrt", "p", "head", "ranks(1)", "1")
    assert (done.returncode, "which is on ranks 0,2" in done.stderr) == (2, True)


def test_ranks_without_an_actor_can_be_looked_at() -> None:
    with proc_mesh(name="work", hosts=2, gpus=2) as mesh, person() as me:
        mesh.slice(gpus=0).spawn("head", Debugee).get(WAIT)
        mesh.initialized.get(WAIT)
        me.until("list all", "head")
        assert me("where ranks(1)").startswith("1 rank of work") and me("where").startswith("4 ranks of work")
        assert "'gpus': 1" not in me("list all")
        assert refusal(me, "list all ranks(1)").startswith("this selects no rank of head")
        assert me("memory ranks(1)").splitlines()[1].split()[:3] == ["1", "hosts=0,gpus=1", "-"]


def test_an_actor_that_a_rank_has_spawned_and_one_that_was_stopped(mesh: ProcMesh) -> None:
    with person() as me, proc_mesh(name="spawners", n=1) as other:
        other.spawn("spawner", Spawner).spawn.call_one(mesh).get(WAIT)
        me.until("list all inner", "{'tp': 0}", "{'tp': 1}")
        assert me("p inner ranks(tp=0) 1") == "[2] 1\n"
        again = mesh.slice(gpus=0).spawn("again", Debugee).get(WAIT)
        again.slice(hosts=0).stop().get(WAIT)
        wait_until(lambda: me("p again 1") == "[2] 1\n", 10)
        again.slice(hosts=1).stop().get(WAIT)
        mesh.slice(gpus=1).spawn("again", Debugee).get(WAIT)
        wait_until(lambda: me("p again 1") == "[1,3] 1\n", 10)


def test_a_rank_that_ends_is_named_after_an_actor_that_it_has() -> None:
    with proc_mesh(name="work", gpus=3) as mesh, person() as me:
        mesh.slice(gpus=slice(0, 2)).spawn("head", Debugee).get(WAIT)
        mesh.initialized.get(WAIT)
        me.until("list all", "head")
        mesh.slice(gpus=2).spawn("late", Killed).die.broadcast()
        me.heard("rank 2 of late has ended")


class Killed(Actor):
    """Ends its process."""

    @endpoint
    def die(self) -> None:
        assert current_rank().rank == 0
        os._exit(3)
