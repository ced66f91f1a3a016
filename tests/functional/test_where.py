"""Where ranks are: every way to stand still, told by the ranks themselves, by their host agents and by faulthandler."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, ActorMesh, LocalEngine, current_rank, endpoint, proc_mesh
from meshrt.inspect.merged import MergedStacks
from meshrt.inspect.records import ReadStacks, StackFrame
from meshrt.inspect.text import render_stacks
from meshrt.mesh.program import start_root
from meshrt.program.places import Place
from tests.support import standing
from tests.support.asking import Question, stacks_of, where
from tests.support.pausing import pause
from tests.support.standing import AsyncStander, Stander, line_of
from tests.support.waiting import wait_until

WAIT = 30
FILE = standing.__file__


def arrive(actor: ActorMesh[Any], directory: Path, endpoint: str, *args: Any) -> None:
    """Call an endpoint that stays, and return when every rank is there."""
    getattr(actor, endpoint).broadcast(*args)
    wait_until(lambda: len(list(directory.glob("*Stander-*"))) >= actor.size(), WAIT, "every rank is there")


def innermost(record: dict[str, Any]) -> tuple[str, int]:
    frame: StackFrame = record["frames"][-1]
    return frame.file, frame.line


def seen(rank: int = 0, actor: str = "", **wanted: Any) -> dict[str, Any]:
    """Ask until the first record of a rank is as wanted: it may have come to its place only just now."""
    found: list[dict[str, Any]] = []

    def looks_right() -> bool:
        found[:] = where(actor)[rank]
        return all(found[0][name] == value for name, value in wanted.items())

    wait_until(looks_right, WAIT, f"{wanted} in {found}")
    return found[0]


@pytest.mark.parametrize(
    ("endpoint", "mark", "holder"),
    [
        ("recv", "recv", "self.pair.recv"),
        ("lock", "lock", "with lock"),
        ("sleep", "sleep", "time.sleep"),
    ],
)
def test_a_rank_that_is_blocked(tmp_path: Path, endpoint: str, mark: str, holder: str) -> None:
    stander = proc_mesh(n=2).spawn("stander", Stander, str(tmp_path))
    arrive(stander, tmp_path, endpoint)
    record = seen(state="blocked", holder=holder)
    assert record["frames"] == [StackFrame(FILE, line_of(mark), endpoint)]
    assert (record["kind"], record["actor"], record["endpoint"]) == ("actor", "stander", endpoint)
    assert record["since"] > 0 and record["cpu"] == 0
    later = seen(state="blocked")
    assert later["since"] > record["since"]


def test_the_standard_library_below_user_code_is_shown(tmp_path: Path) -> None:
    stander = proc_mesh(n=1).spawn("stander", Stander, str(tmp_path))
    arrive(stander, tmp_path, "get_item")
    record = seen(state="blocked", holder="waiter.acquire")
    assert [frame.function for frame in record["frames"]] == ["get_item", "get", "wait"]
    assert innermost({"frames": record["frames"][:1]}) == (FILE, line_of("get"))


def test_an_actor_that_waits_for_messages_is_idle(tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    mesh.spawn("stander", Stander, str(tmp_path)).get(WAIT)
    mesh.spawn("async", AsyncStander, str(tmp_path)).get(WAIT)
    for records in where().values():
        assert [(record["actor"], record["state"], record["frames"]) for record in records] == [
            ("stander", "idle", []),
            ("async", "idle", []),
        ]


def test_a_loop_runs(tmp_path: Path) -> None:
    stander = proc_mesh(n=1).spawn("stander", Stander, str(tmp_path))
    arrive(stander, tmp_path, "loop")
    record = seen(state="running")
    assert record["frames"][-1].function == "loop" and record["since"] == 0
    assert where()[0][0]["cpu"] > 0


def test_a_call_that_waits_for_another_rank(tmp_path: Path) -> None:
    """The runtime's own frames are hidden; with ``verbose`` they are told."""
    mesh = proc_mesh(n=2)
    other = mesh.spawn("other", Stander, str(tmp_path / "other")).get(WAIT)
    (tmp_path / "other").mkdir()
    waiting = mesh.slice(n=0).spawn("waiting", Stander, str(tmp_path))
    arrive(waiting, tmp_path, "wait_for", other.slice(n=1))
    record = seen(0, "waiting", state="blocked")
    assert record["frames"] == [StackFrame(FILE, line_of("call"), "wait_for")]
    assert record["holder"] == "other.recv.call_one.get"
    frames = where("waiting", verbose=True)[0][0]["frames"]
    assert StackFrame(FILE, line_of("call"), "wait_for") in frames
    assert any(frame.hidden and "meshrt" in frame.file for frame in frames)


def test_a_second_actor_and_its_choice(tmp_path: Path) -> None:
    mesh = proc_mesh(n=2)
    mesh.spawn("first", Stander, str(tmp_path)).get(WAIT)
    second = mesh.spawn("second", Stander, str(tmp_path))
    arrive(second, tmp_path, "recv")
    assert innermost(seen(1, "second", state="blocked")) == (FILE, line_of("recv"))
    assert [record["actor"] for record in where("second")[1]] == ["second"]
    assert {record["actor"]: record["state"] for record in where()[1]} == {"first": "idle", "second": "blocked"}


def test_a_thread_of_user_code(tmp_path: Path) -> None:
    stander = proc_mesh(n=1).spawn("stander", Stander, str(tmp_path))
    stander.start_thread.call().get(WAIT)
    wait_until(lambda: where()[0][-1]["state"] == "blocked", WAIT)
    idle, thread = where()[0]
    assert (idle["state"], thread["kind"], thread["name"]) == ("idle", "thread", "loader-1")
    assert thread["frames"][0] == StackFrame(FILE, line_of("thread"), "load")


def test_an_endpoint_that_awaits(tmp_path: Path) -> None:
    """The chain of awaits through an async generator; tasks beside it are told as well."""
    mesh = proc_mesh(n=1)
    actor = mesh.spawn("async", AsyncStander, str(tmp_path))
    arrive(actor, tmp_path, "wait")
    record = seen(state="blocked", endpoint="wait")
    assert [frame.function for frame in record["frames"]] == ["wait", "deeper", "items", "wait"]
    assert StackFrame(FILE, line_of("await"), "items") in record["frames"]
    assert record["holder"] == "Future"
    task = next(record for record in where()[0] if record["kind"] == "task")
    assert (task["name"], task["actor"], task["state"]) == ("beside", "async", "blocked")
    assert task["frames"][0].file == FILE and task["frames"][0].line == line_of("beside")


def test_an_endpoint_that_blocks_its_loop(tmp_path: Path) -> None:
    actor = proc_mesh(n=1).spawn("async", AsyncStander, str(tmp_path))
    arrive(actor, tmp_path, "block")
    record = seen(state="blocked", holder="time.sleep")
    assert innermost(record) == (FILE, line_of("block"))
    assert len(where()[0]) == 1


def test_a_task_that_blocks_the_loop_of_its_actor(tmp_path: Path) -> None:
    actor = proc_mesh(n=1).spawn("async", AsyncStander, str(tmp_path))
    arrive(actor, tmp_path, "block_in_task")
    record = seen(state="blocked", endpoint="block_in_task")
    assert record["frames"] == [StackFrame(FILE, line_of("awaiting"), "block_in_task")]
    assert record["holder"] == "Task"
    tasks = [record for record in where()[0] if record["kind"] == "task"]
    assert [(task["name"], innermost(task), task["state"]) for task in tasks] == [
        ("blocking", (FILE, line_of("task")), "blocked")
    ]


def test_a_rank_at_a_breakpoint(tmp_path: Path) -> None:
    stander = proc_mesh(n=2).spawn("stander", Stander, str(tmp_path))
    arrive(stander.slice(n=1), tmp_path, "stop_here")
    record = seen(1, state="stopped")
    assert [frame.function for frame in record["frames"]] == ["stop_here"]
    seen(0, state="idle")


@pytest.mark.slow
@pytest.mark.parametrize("agents", [1, 2, 4])
def test_the_odd_ranks_are_named(tmp_path: Path, agents: int) -> None:
    mesh = proc_mesh(hosts=4, gpus=4, engine=LocalEngine(agents))
    stander = mesh.spawn("stander", Stander, str(tmp_path))
    pids = stander.pid.call().get(WAIT).values()
    odd = {3: "lock", 7: "loop", 9: "hold_gil"}
    arrive(stander, tmp_path, "on_rank", odd, "recv")
    seen(0, state="blocked")
    seen(3, state="blocked")
    pause(pids[12])
    os.kill(pids[13], signal.SIGKILL)
    (record,) = start_root().registry.running()
    wait_until(lambda: 13 in record.fates, WAIT)
    found: list[MergedStacks] = []

    def all_answer() -> bool:  # on a loaded machine faulthandler is asked of one that is only slow, which suffices
        stacks = stacks_of(Question(ReadStacks(), stack_suffices=True, targets={record.mesh_id: range(16)}))
        found[:] = [stacks.answer()]
        return found[0].meshes[0].answered.count == 13

    wait_until(all_answer, WAIT)
    assert found[0].meshes[0].asked == 16
    assert found[0].meshes[0].culprits.ranks == [3, 7, 9, 12, 13]
    text = render_stacks(found[0])
    recv, lock, gil = (f"support/standing.py:{line_of(mark)}" for mark in ("recv", "lock", "gil"))
    assert text.index(recv) < text.index(lock)
    assert f"{gil}    in C code <faulthandler: the GIL is held in C>" in text
    assert "self.pair.recv" in text and "return self.pair[0].recv(1)" in text
    assert "stopped by a signal" in text and "was killed by SIGKILL" in text
    assert text.splitlines()[-1] == "  likely culprits: 3,7,9,12-13 (at another place than the other 11)"


@pytest.mark.nightly
def test_the_root_is_told_who_stands_still(tmp_path: Path) -> None:
    """Nobody has asked: the table is kept by the ranks' pulses, and by those of the host agents."""
    mesh = proc_mesh(n=3)
    stander = mesh.spawn("stander", Stander, str(tmp_path))
    pids = stander.pid.call().get(WAIT).values()
    beside = mesh.spawn("beside", Stander, str(tmp_path)).get(WAIT)
    services = start_root().services
    (mesh_id,) = (each.mesh_id for each in services.meshes())
    arrive(stander, tmp_path, "on_rank", {1: "loop", 2: "sleep"}, "recv")

    def activity(rank: int, actor: str = "stander") -> Any:
        table = services.tables.get("inspect.activity")
        return None if table is None else table.state(mesh_id, rank, actor)

    wait_until(lambda: activity(0) is not None and activity(2) is not None, WAIT)
    assert (activity(0).word, activity(0).place) == ("blocked", Place(FILE, line_of("recv"), "recv"))
    assert activity(1) is None and activity(0, "beside") is None
    pause(pids[2])
    wait_until(lambda: activity(2).word == "not-answering", WAIT)
    assert activity(2).place.line == line_of("sleep")
    os.kill(pids[2], signal.SIGCONT)
    wait_until(lambda: activity(2).word == "blocked", WAIT)
    os.kill(pids[2], signal.SIGKILL)
    wait_until(lambda: activity(2) is None, WAIT)
    beside.slice(n=0).recv.broadcast()
    wait_until(lambda: activity(0, "beside") is not None, WAIT)


def meet(folder: str, count: int) -> None:
    """Wait for the other ranks: one that has not begun would answer those that have."""
    (Path(folder) / str(current_rank().rank)).touch()
    wait_until(lambda: len(os.listdir(folder)) == count, WAIT)


class Caller(Actor):
    """Calls others, and is called."""

    @endpoint
    def call_next(self, mesh: ActorMesh[Any], folder: str) -> int:
        meet(folder, mesh.size())
        following: int = mesh.slice(n=(current_rank().rank + 1) % mesh.size()).ask.call_one().get(timeout=500)
        return following

    @endpoint
    def ask(self) -> int:
        return 1


class AsyncCaller(Actor):
    """The same on an event loop: of several calls at once."""

    @endpoint
    async def call_next(self, mesh: ActorMesh[Any], folder: str) -> list[int]:
        meet(folder, mesh.size())
        following = mesh.slice(n=(current_rank().rank + 1) % mesh.size())
        return list(await asyncio.gather(following.ask.call_one(), following.ask.call_one()))

    @endpoint
    async def ask(self) -> int:
        return 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Caller, AsyncCaller])
def test_ranks_that_wait_for_each_other(kind: type[Caller] | type[AsyncCaller], tmp_path: Path) -> None:
    caller: ActorMesh[Any] = proc_mesh(n=2).spawn("caller", kind)
    caller.get(WAIT)
    called = caller.call_next.call(caller, str(tmp_path))
    cycle = "rank 0 waits for caller.ask() of rank 1, which waits for caller.ask() of rank 0: a cycle, for "

    def told() -> bool:
        found = stacks_of(Question(ReadStacks())).answer().waits
        left = [wait.left for wait in found if wait.cycle and wait.text.startswith(cycle)]
        # When a get() gives up is known, and said; of an await it is not.
        return bool(left) and (left[0] is None or 0 < left[0] < 500) and (left[0] is None) is (kind is AsyncCaller)

    wait_until(told, WAIT, "the cycle is seen")
    # Without asking, too: ranks tell by themselves that they stand, and for whom.
    activity = start_root().services.tables["inspect.activity"]
    wait_until(lambda: any(line.startswith(cycle) for line in activity.wait_lines(4)), WAIT, "the cycle is told")
    assert not called.done()
