"""``get_or_spawn``: one actor of a name in the program, asked for by anybody, at any time."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import meshrt
from meshrt import (
    Actor,
    ActorError,
    ActorMesh,
    CallTimeout,
    MeshError,
    ProcessDied,
    UsageError,
    context,
    endpoint,
    get_or_spawn,
    proc_mesh,
)
from tests.support.programs import run_python
from tests.support.waiting import wait_until


class Store(Actor):
    """Counts."""

    def __init__(self, start: int, *, label: str = "") -> None:
        if start < 0:
            raise ValueError(f"start is {start}")
        if start == 666:
            os._exit(6)
        self.count = start

    @endpoint
    def add(self) -> int:
        self.count += 1
        return self.count

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def creator(self) -> str:
        return str(context().actor_instance.creator)


class Other(Store):
    """Another class with the same endpoints."""


class User(Actor):
    """Asks for singletons from its rank."""

    @endpoint
    def add(self, times: int, name: str = "store", start: int = 0) -> list[int]:
        return [get_or_spawn(name, Store, start, label="x").get(20).add.call_one().get(20) for _ in range(times)]

    @endpoint
    async def add_async(self) -> int:
        store = await get_or_spawn("store", Store, 0, label="x")
        added: int = await store.add.call_one()
        return added

    @endpoint
    def find(self, name: str) -> int:
        found: int = meshrt.get_singleton(name).pid.call_one().get(20)
        return found

    @endpoint
    def make_mesh(self) -> list[int]:
        with proc_mesh(n=1) as mesh:
            added: list[int] = mesh.spawn("user", User).add.call_one(1).get(20)
            return added

    @endpoint
    def die_while_asking(self) -> None:
        get_or_spawn("late", Store, 5)
        os._exit(1)


def ends(process: int) -> None:
    wait_until(lambda: not os.path.exists(f"/proc/{process}"), 20, "the process has ended")


def test_ranks_script_and_meshes_of_ranks_share_one() -> None:
    mesh = proc_mesh(n=3)
    users = mesh.spawn("user", User)
    asked = users.add.call(5)  # while the script asks, too, from two threads
    mine: list[int] = []

    def ask() -> None:
        mine.append(get_or_spawn("store", Store, 0, label="x").get(20).add.call_one().get(20))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    theirs = [each for values in asked.get(30).values() for each in values]
    async_ones = users.add_async.call().get(20).values()
    nested = users.slice(n=0).make_mesh.call_one().get(30)
    assert sorted([*mine, *theirs]) == list(range(1, 18))
    assert sorted(async_ones) == [18, 19, 20] and nested == [21]
    pid = meshrt.get_singleton("store", Store).pid.call_one().get(20)
    assert users.find.call("store").get(20).values() == [pid] * 3
    assert pid != os.getpid()
    # It does not end with a rank or a mesh that has asked for it.
    mesh.stop()
    assert get_or_spawn("store", Store, 0, label="x").get(20).add.call_one().get(20) == 22
    shown = run_python("-m", "meshrt", "ps", "-v").stdout
    assert "store" in shown
    (program,) = [line for line in run_python("-m", "meshrt", "ps").stdout.splitlines() if str(os.getpid()) in line]
    assert "store" in program


def test_a_singleton_that_a_rank_has_asked_for_first_has_no_creator_but_the_script() -> None:
    proc_mesh(n=1).spawn("user", User).add.call(1).get(20)
    assert meshrt.get_singleton("store", Store).creator.call_one().get(20) == "<root>"


class Slow(Store):
    """Is built when a path is there."""

    def __init__(self, gate: str) -> None:
        super().__init__(0)
        wait_until(lambda: os.path.exists(gate), 20)


def test_one_that_is_being_built_times_out_and_is_not_cancelled(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    first, second = (get_or_spawn("slow", Slow, str(gate)) for _ in range(2))
    for asked in (first, second):
        with pytest.raises(CallTimeout, match=r"slow.__init__\(\): no answer within 0.01 s"):
            asked.get(0.01)
    assert not second.cancel()
    gate.touch()
    assert first.get(20).add.call_one().get(20) == 1 and second.get(20).add.call_one().get(20) == 2


def test_another_class_or_other_arguments_are_refused() -> None:
    get_or_spawn("store", Store, 1).get(20)
    assert get_or_spawn("store", Store, 1).get(20).add.call_one().get(20) == 2
    with pytest.raises(UsageError, match=r"'store' already exists as tests\S+Store\(1\), not tests\S+Store\(2\)"):
        get_or_spawn("store", Store, 2).get(20)
    with pytest.raises(UsageError, match=r"already exists as \S+Store\(1\), not \S+Other\(1\)"):
        get_or_spawn("store", Other, 1).get(20)
    with pytest.raises(UsageError, match=r"not \S+Store\(1, label='a'\)"):
        get_or_spawn("store", Store, 1, label="a").get(20)
    with pytest.raises(TypeError, match="missing a required argument"):
        get_or_spawn("store", Store)  # type: ignore[call-arg,unused-ignore]
    with pytest.raises(UsageError, match=r"no singleton 'stroe': it has store"):
        meshrt.get_singleton("stroe")
    users = proc_mesh(n=1).spawn("user", User)
    with pytest.raises(ActorError, match=r"already exists as \S+Store\(1\), not \S+Store\(0, label='x'\)"):
        users.add.call(1).get(20)


def test_one_that_fails_tells_why_and_is_built_anew() -> None:
    for _ in range(2):
        with pytest.raises(ActorError, match="start is -1"):
            get_or_spawn("store", Store, -1).get(20)
    with pytest.raises(ProcessDied, match="code 6"):
        get_or_spawn("store2", Store, 666).get(20)
    store = get_or_spawn("store", Store, 1).get(20)  # its name is free for other arguments
    assert store.add.call_one().get(20) == 2
    store.stop()
    store = get_or_spawn("store", Store, 7).get(20)
    assert store.add.call_one().get(20) == 8
    assert get_or_spawn("store2", Store, 7).get(20).add.call_one().get(20) == 8


def asked_again(name: str, start: int) -> ActorMesh[Store]:
    """Ask until the program knows that the one before has ended."""
    found: list[ActorMesh[Store]] = []

    def is_there() -> bool:
        try:
            found.append(get_or_spawn(name, Store, start).get(20))
        except (MeshError, UsageError):
            return False
        return True

    wait_until(is_there, 20)
    return found[0]


def test_its_death_is_told_to_its_callers_and_the_next_one_is_new() -> None:
    store = get_or_spawn("store", Store, 1).get(20)
    users = proc_mesh(n=1).spawn("user", User)
    pid = store.pid.call_one().get(20)
    os.kill(pid, signal.SIGKILL)
    ends(pid)
    # A wait of the script for something else is not interrupted.
    assert users.add.call(1, name="another").get(20).values() == [[1]]
    with pytest.raises(ProcessDied, match=r"store\.add\(\) failed.*SIGKILL"):
        store.add.call_one().get(20)
    again = asked_again("store", 30)
    assert again.add.call_one().get(20) == 31 and again.pid.call_one().get(20) != pid
    with pytest.raises(ProcessDied):
        store.add.call_one().get(20)


def test_a_rank_that_dies_while_it_asks_leaves_nothing_half_done() -> None:
    users = proc_mesh(n=1).spawn("user", User)
    with pytest.raises(ProcessDied):
        users.die_while_asking.call().get(20)
    store = get_or_spawn("late", Store, 5).get(20)
    assert store.add.call_one().get(20) == 6


def test_one_that_dies_unnoticed_is_in_the_report_of_the_end() -> None:
    code = """
import os, signal, time
import meshrt
class Store(meshrt.Actor):
    @meshrt.endpoint
    def pid(self):
        return os.getpid()
mesh = meshrt.proc_mesh(n=1)
pid = meshrt.get_or_spawn("store", Store).get(20).pid.call_one().get(20)
os.kill(pid, signal.SIGKILL)
echo = mesh.spawn("other", Store)
while os.path.exists(f"/proc/{pid}"):
    echo.pid.call_one().get(20)
print("went on")
"""
    done = run_python("-c", code)
    assert "went on" in done.stdout and "Traceback" not in done.stderr
    assert done.returncode == 1 and "store rank 0" in done.stderr


def test_a_death_that_a_rank_was_told_of_and_has_handled_is_no_failure_of_the_program() -> None:
    code = """
import os, signal
import meshrt
class Store(meshrt.Actor):
    @meshrt.endpoint
    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)
    @meshrt.endpoint
    def lives(self):
        return True
class User(meshrt.Actor):
    @meshrt.endpoint
    def use(self):
        try:
            meshrt.get_or_spawn("store", Store).get().die.call_one().get()
        except meshrt.ProcessDied:
            pass
        try:
            meshrt.get_singleton("store")
        except meshrt.UsageError as error:
            print(error)
        return meshrt.get_or_spawn("store", Store).get().lives.call_one().get()
assert meshrt.proc_mesh(n=1).spawn("user", User).use.call_one().get(20)
"""
    done = run_python("-c", code)
    assert done.returncode == 0 and "FAILED" not in done.stderr
    assert "singleton 'store' was killed by SIGKILL; get_or_spawn() starts another one" in done.stdout


def test_the_hook_is_told_also_if_it_is_asked_for_again_at_once() -> None:
    code = """
import os, signal, time
import meshrt
class Store(meshrt.Actor):
    @meshrt.endpoint
    def pid(self):
        return os.getpid()
class User(meshrt.Actor):
    @meshrt.endpoint
    def replace(self):
        first = meshrt.get_or_spawn("store", Store).get(20).pid.call_one().get(20)
        os.kill(first, signal.SIGKILL)
        while True:
            try:
                if meshrt.get_or_spawn("store", Store).get(20).pid.call_one().get(20) != first:
                    return
            except meshrt.ProcessDied:
                pass
told = []
meshrt.unhandled_fault_hook = told.append
user = meshrt.proc_mesh(n=1).spawn("user", User)
for number in range(3):
    user.replace.call_one().get(20)
    deadline = time.monotonic() + 20
    while len(told) <= number and time.monotonic() < deadline:
        time.sleep(0.01)
    meshrt.get_singleton("store").stop().get(20)
print(len(told))
"""
    done = run_python("-c", code)
    assert done.stdout == "3\n" and done.returncode == 0, done.stderr


def test_classes_and_values_of_a_script_are_the_same_in_its_ranks() -> None:
    code = """
from dataclasses import dataclass
import meshrt

@dataclass
class Config:
    size: int
    names: tuple

class Store(meshrt.Actor):
    def __init__(self, config, key):
        self.config = config
    @meshrt.endpoint
    def read(self):
        return self.config.size

class User(meshrt.Actor):
    @meshrt.endpoint
    def ask(self):
        config = Config(1, ("a", "".join(["a"])))
        return meshrt.get_or_spawn("store", Store, config, len).get(20).read.call_one().get(20)

user = meshrt.proc_mesh().spawn("user", User)
print(user.ask.call_one().get(20), meshrt.get_or_spawn("store", Store, Config(1, ("a", "a")), len).get(20).name)
try:
    meshrt.get_or_spawn("store", Store, Config(2, ("a", "a")), len).get(20)
except meshrt.UsageError as error:
    print(error)
"""
    done = run_python("-c", code)
    assert done.stdout.startswith("1 store\n") and ", with other arguments" in done.stdout
    assert "the singleton 'store' already exists as " in done.stdout


def test_a_class_that_a_function_defines_is_the_same_in_ranks() -> None:
    code = """
import meshrt

class Wanted:
    class Kind:
        pass

def main():
    class Store(meshrt.Actor):
        def __init__(self, kind):
            self.count = 0
        @meshrt.endpoint
        def add(self):
            self.count += 1
            return self.count

    class User(meshrt.Actor):
        @meshrt.endpoint
        def ask(self, store, kind):
            return meshrt.get_or_spawn("store", store, kind).get(20).add.call_one().get(20)

    print(meshrt.get_or_spawn("store", Store, Wanted.Kind()).get(20).add.call_one().get(20))
    print(meshrt.proc_mesh().spawn("user", User).ask.call_one(Store, Wanted.Kind()).get(20))

main()
"""
    assert run_python("-c", code).stdout == "1\n2\n"
