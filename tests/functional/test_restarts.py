"""``spawn(max_restarts=...)``: a rank whose process has ended is started again in its place, with its actors."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from meshrt import (
    Actor,
    ActorError,
    MeshStopped,
    ProcessDied,
    Restart,
    UsageError,
    current_rank,
    endpoint,
    proc_mesh,
    this_proc,
)
from meshrt.mesh import restarts
from tests.debug.harness import person
from tests.support.actors import Echo
from tests.support.screen import Screen
from tests.support.waiting import wait_until

WAIT = 20


class Counter(Actor):
    """Counts, from what it was built with."""

    def __init__(self, start: list[int], folder: str = "") -> None:
        self.count = start[0]
        self.folder = Path(folder)
        if folder and (self.folder / "die").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if folder and (self.folder / "raise").exists():
            raise OSError("the file is gone")

    @endpoint
    def add(self) -> int:
        self.count += 1
        return self.count

    @endpoint
    def where(self) -> tuple[int, dict[str, int], str | None]:
        return current_rank().rank, dict(current_rank()), os.environ.get("MESHRT_INCARNATION")

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @endpoint
    def stop_here(self) -> int:
        breakpoint()
        return self.count


class Boss(Actor):
    """Spawns an actor that is restarted, from a rank."""

    @endpoint
    def spawn(self) -> int:
        self.told: list[Restart] = []
        mesh = proc_mesh(n=2, name="inner")
        self.counter = mesh.spawn("counter", Counter, [5], max_restarts=1, on_restart=self.told.append)
        pid: int = self.counter.slice(n=1).pid.call_one().get(WAIT)
        return pid

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def add(self) -> list[int]:
        return self.counter.add.call().get(WAIT).values()

    @endpoint
    def incarnations(self) -> list[int]:
        return [restart.incarnation for restart in self.told]


def die(handle: Any, n: int) -> ProcessDied:
    error = handle.slice(n=n).die.call_one().exception(WAIT)
    assert isinstance(error, ProcessDied)
    return error


def answers(handle: Any) -> int | None:
    """Return the pid of the only rank; None where the one that is dying was called."""
    call = handle.pid.call_one()
    return None if isinstance(call.exception(WAIT), ProcessDied) else int(call.get())


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon after the last time."""
    monkeypatch.setattr(restarts, "APART", 0.0)


@pytest.mark.usefixtures("at_once")
def test_it_takes_its_place_as_it_was_spawned() -> None:
    told: list[Restart] = []
    start = [10]
    mesh = proc_mesh(hosts=2, n=2)
    counter = mesh.spawn("counter", Counter, start, max_restarts=2, on_restart=told.append)
    assert counter.add.call().get(WAIT).values() == [11] * 4
    start[0] = 99  # of no account any more
    victim = counter.slice(hosts=1)
    assert victim.slice(n=0).pid.call_one().get(WAIT)
    error = die(victim, 0)
    assert error.may_have_run
    assert counter.add.call().get(WAIT).values() == [12, 12, 11, 12]
    assert counter.where.call().get(WAIT).values()[2] == (2, {"hosts": 1, "n": 0}, "1")
    wait_until(lambda: len(told) == 1, WAIT)
    assert (told[0].incarnation, told[0].place.rank) == (1, 2)
    assert isinstance(told[0].error, ProcessDied) and told[0].error.signal == signal.SIGKILL
    assert told[0].place.pid == victim.slice(n=0).pid.call_one().get(WAIT) != told[0].error.place.pid
    die(victim, 0)
    assert counter.add.call().get(WAIT).values() == [13, 13, 11, 13]
    die(victim, 0)
    assert isinstance(counter.add.call().exception(WAIT), ProcessDied)


def test_calls_that_were_on_their_way_fail_and_are_not_run_again(tmp_path: Path) -> None:
    counter = proc_mesh(n=1).spawn("counter", Counter, [0], max_restarts=1)
    dying = counter.die.call_one()
    behind = [counter.add.call_one() for _ in range(20)]
    assert isinstance(dying.exception(WAIT), ProcessDied)
    errors = [call.exception(WAIT) for call in behind]
    lost = [error for error in errors if error is not None]
    assert all(isinstance(error, ProcessDied) for error in lost)
    assert counter.add.call_one().get(WAIT) == len(errors) - len(lost) + 1


def test_an_idle_rank_that_is_started_again_disturbs_nobody() -> None:
    counter = proc_mesh(n=2).spawn("counter", Counter, [0], max_restarts=1)
    pid = counter.slice(n=1).pid.call_one().get(WAIT)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: answers(counter.slice(n=1)) not in (None, pid), WAIT)
    assert counter.add.call().get(WAIT).values() == [1, 1]


@pytest.mark.row("X2")
def test_what_dies_again_at_once_is_left_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    counter = proc_mesh(n=1, name="mine").spawn("counter", Counter, [0], str(tmp_path), max_restarts=100).get(WAIT)
    (tmp_path / "die").touch()
    die(counter, 0)
    assert isinstance(counter.add.call_one().exception(WAIT), ProcessDied)
    err.wait_for("; the rank is not restarted: it ended within 5 s of its last restart")
    assert err.text.count("restarting it") == 1


def test_an_init_that_raises_the_second_time_is_told_to_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    told: list[Restart] = []
    counter = proc_mesh(n=1).spawn("counter", Counter, [0], str(tmp_path), max_restarts=1, on_restart=told.append)
    counter.get(WAIT)
    (tmp_path / "raise").touch()
    die(counter, 0)
    error = counter.add.call_one().exception(WAIT)
    assert isinstance(error, ActorError) and "the file is gone (earlier, in __init__)" in str(error)
    err.wait_for("counter.__init__() raised on rank 0 (n=0)")
    assert told == []


def test_a_rank_with_another_actor_stays_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    mesh = proc_mesh(n=1)
    counter = mesh.spawn("counter", Counter, [0], max_restarts=1).get(WAIT)
    other = mesh.spawn("other", Echo).get(WAIT)
    die(counter, 0)
    err.wait_for("; the rank is not restarted: it also runs other, which has no max_restarts")
    assert isinstance(other.echo.call_one(1).exception(WAIT), ProcessDied)


def test_all_actors_of_a_rank_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = proc_mesh(n=2)
    counter = mesh.spawn("counter", Counter, [0], max_restarts=1).get(WAIT)
    other = mesh.slice(n=1).spawn("other", Counter, [100], max_restarts=1).get(WAIT)
    die(counter, 1)
    assert counter.add.call().get(WAIT).values() == [1, 1]
    assert other.add.call_one().get(WAIT) == 101


def test_a_rank_restarts_what_it_has_spawned() -> None:
    boss = proc_mesh(n=1).spawn("boss", Boss)
    pid = boss.spawn.call_one().get(WAIT)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: boss.incarnations.call_one().get(WAIT) == [1], WAIT)
    assert boss.add.call_one().get(WAIT) == [6, 6]


def test_what_a_rank_has_made_ends_with_its_process_though_it_is_started_again() -> None:
    boss = proc_mesh(n=1).spawn("boss", Boss, max_restarts=1)
    inner = boss.spawn.call_one().get(WAIT)
    os.kill(boss.pid.call_one().get(WAIT), signal.SIGKILL)
    wait_until(lambda: not os.path.exists(f"/proc/{inner}"), WAIT, "what it had made has ended")
    wait_until(lambda: isinstance(boss.incarnations.call_one().exception(WAIT), ActorError), WAIT, "it is built again")
    assert boss.spawn.call_one().get(WAIT) != inner and boss.add.call_one().get(WAIT) == [6, 6]


def test_others_who_have_a_handle_reach_the_new_one() -> None:
    class Friend(Actor):
        @endpoint
        def add(self, counter: Any) -> int:
            return int(counter.add.call_one().get(WAIT))

    counter = proc_mesh(n=1).spawn("counter", Counter, [0], max_restarts=1)
    friend = proc_mesh(n=1).spawn("friend", Friend)
    assert friend.add.call_one(counter).get(WAIT) == 1
    die(counter, 0)
    # The friend may not have been told yet, and call the old one.
    wait_until(lambda: friend.add.call_one(counter).exception(WAIT) is None, WAIT)
    assert friend.add.call_one(counter).get(WAIT) == 2


def test_modules_are_preloaded_and_set_up_again(tmp_path: Path) -> None:
    def setup() -> None:
        (tmp_path / str(os.getpid())).touch()

    counter = proc_mesh(n=1, preload=["json"], setup=setup).spawn("counter", Counter, [0], max_restarts=1)
    first = counter.pid.call_one().get(WAIT)
    die(counter, 0)
    second = counter.pid.call_one().get(WAIT)
    assert {path.name for path in tmp_path.iterdir()} == {str(first), str(second)}


def test_the_debugger_finds_the_new_process() -> None:
    counter = proc_mesh(n=2).spawn("counter", Counter, [7], max_restarts=1).get(WAIT)
    stopped = counter.slice(n=1).stop_here.call_one()
    with person() as me:
        me.wait("counter", "ranks(1)")
        os.kill(me.rows()[0]["pid"], signal.SIGKILL)
        assert isinstance(stopped.exception(WAIT), ProcessDied)
        again = counter.slice(n=1).stop_here.call_one()
        me.wait("counter", "ranks(1)")
        assert me("cast counter ranks(1) p self.count") == "[1] 7\n"
        me("continue")
    assert again.get(WAIT) == 7


def test_an_actor_that_was_stopped_is_not_built_again() -> None:
    mesh = proc_mesh(n=1)
    mesh.spawn("first", Counter, [0], max_restarts=3).get(WAIT).stop().get(WAIT)
    again = mesh.spawn("first", Counter, [100]).get(WAIT)
    die(again, 0)
    assert isinstance(again.add.call_one().exception(WAIT), ProcessDied)


def test_slices_that_were_spawned_by_themselves_are_built_again_each() -> None:
    mesh = proc_mesh(n=2)
    first = mesh.slice(n=0).spawn("counter", Counter, [0], max_restarts=1).get(WAIT)
    second = mesh.slice(n=1).spawn("counter", Counter, [100], max_restarts=1).get(WAIT)
    for counter, count in ((first, 1), (second, 101)):
        assert isinstance(counter.die.call_one().exception(WAIT), ProcessDied)
        assert counter.add.call_one().get(WAIT) == count


def test_one_of_two_actors_was_stopped() -> None:
    mesh = proc_mesh(n=1)
    stays = mesh.spawn("stays", Counter, [0], max_restarts=3).get(WAIT)
    goes = mesh.spawn("goes", Counter, [0], max_restarts=3).get(WAIT)
    goes.stop().get(WAIT)
    die(stays, 0)
    assert stays.add.call_one().get(WAIT) == 1


def test_what_nobody_would_build_again_is_left_dead() -> None:
    class Spawner(Actor):
        @endpoint
        def spawn(self, mesh: Any) -> Any:
            self.counter = mesh.spawn("counter", Counter, [0], max_restarts=3).get(WAIT)
            return self.counter

    workers, spawners = proc_mesh(n=1), proc_mesh(n=1)
    counter = spawners.spawn("spawner", Spawner).spawn.call_one(workers).get(WAIT)
    assert counter.add.call_one().get(WAIT) == 1
    pid = counter.pid.call_one().get(WAIT)
    spawners.stop().get(WAIT)
    # What it has made ends with it, and then the rank is of nobody who would have it started again.
    wait_until(lambda: isinstance(counter.add.call_one().exception(WAIT), MeshStopped), WAIT)
    os.kill(pid, signal.SIGKILL)
    assert isinstance(workers.spawn("next", Counter, [0]).initialized.exception(WAIT), ProcessDied)


@pytest.mark.slow
@pytest.mark.usefixtures("at_once")
def test_it_is_built_again_whoever_reads_the_links_meanwhile() -> None:
    """Several threads call all the time: the one that would send ``__init__`` may still have the old link."""
    counter = proc_mesh(n=2).spawn("counter", Counter, [0], max_restarts=100).get(WAIT)
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            counter.add.call().exception(WAIT)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            die(counter, 1)
            wait_until(lambda: counter.slice(n=1).add.call_one().exception(WAIT) is None, WAIT)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_record_says_which_process_it_was() -> None:
    counter = proc_mesh(n=1).spawn("counter", Counter, [0], max_restarts=1)
    record = die(counter, 0).record
    assert (record.incarnation, record.restarted) == (0, True)


def test_a_process_cannot_build_itself_again() -> None:
    class Here(Actor):
        @endpoint
        def spawn(self) -> str:
            try:
                this_proc().spawn("beside", Echo, max_restarts=1)
            except UsageError as error:
                return str(error)
            return "spawned"

    why = "max_restarts= requires an actor in another process: this actor would run in the process that spawns it"
    with pytest.raises(UsageError, match=why):
        this_proc().spawn("here", Echo, max_restarts=1)
    assert proc_mesh(n=2).slice(n=1).spawn("here", Here).spawn.call_one().get(WAIT).startswith(why)
    assert this_proc().spawn("here", Echo, max_restarts=0).echo.call_one(1).get(WAIT) == 1


@pytest.mark.parametrize("count", [-1, 1.5, "2", True])
def test_the_count_is_checked(count: Any) -> None:
    with pytest.raises(UsageError, match="expected the maximum number of restarts of a rank, an integer >= 0"):
        proc_mesh(n=1).spawn("counter", Counter, [0], max_restarts=count)
