"""Many meshes, many calls, many ranks, much killing."""

from __future__ import annotations

import functools
import os
import random
import signal
import threading
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from meshrt import LocalEngine, ProcessDied, SupervisionError, proc_mesh
from tests.faults.actors import Victim
from tests.faults.watch import LONG, Program
from tests.support.waiting import holds_within

MESHES = """
    import gc, time
    from meshrt.mesh.registry import Registry
    Registry.KEPT = 20  # what is remembered of ended meshes has its size soon
    def descriptors():
        return len(os.listdir("/proc/self/fd"))
    engine = LocalEngine(2)
    def cycle():
        mesh = proc_mesh(n=2, engine=engine)
        assert mesh.spawn("victim", Victim).echo.call(1).get(20).values() == [1, 1]
        mesh.stop()
    with proc_mesh(n=2, engine=engine) as settled:
        settled.initialized.get(20)
        while "meshrt.failure.root" not in sys.modules:  # a mesh that lives long enough loads it: 150 objects, once
            time.sleep(0.01)
    for _ in range(int(sys.argv[1])):
        cycle()
    agents = [int(pid) for pid in open(f"/proc/self/task/{os.getpid()}/children").read().split()]
    def state():
        of_agents = [len(os.listdir(f"/proc/{pid}/fd")) for pid in agents]
        return [descriptors(), threading.active_count(), len(os.listdir(os.environ["MESHRT_RUNTIME_DIR"])), *of_agents]
    def size():
        gc.collect()
        pages = [int(open(f"/proc/{pid}/statm").read().split()[1]) for pid in ("self", *agents)]
        # Without timers of ended meshes: they run out, and how many are pending depends on how fast meshes end.
        timers = {"Context", "TimerHandle", "UVTimer", "method", "partial"}
        objects = sum(type(each).__name__ not in timers for each in gc.get_objects())
        return [objects, *(count * 4 for count in pages)]
    before, small = state(), size()
    after = []
    for _ in range(int(sys.argv[2])):
        cycle()
        now = state()
        if now not in after:
            after.append(now)
    tell(before=before, after=after, grown=[now - old for now, old in zip(size(), small)])
"""


@pytest.mark.slow
@pytest.mark.row("L1")
@pytest.mark.parametrize(("warm", "count"), [(50, 50), pytest.param(50, 1000, marks=pytest.mark.nightly)])
def test_meshes_in_a_row_leave_nothing(warm: int, count: int, tmp_path: Path) -> None:
    """Descriptors and threads of the script and of the agents are as before, and memory does not grow.

    When ``stop`` returns its work is done: nobody closes, reaps or looks around any more.
    """
    with Program(MESHES, tmp_path, str(warm), str(count)) as program:
        assert program.told("after", 300) == [program.told("before")]
        objects, *memory = program.told("grown")
        assert objects < 2 * count, "objects of Python in the script: a mesh has about 40"
        if count >= 1000:  # the allocator takes and gives back more than a few meshes need
            assert max(memory) < count, "KiB, of the script and of each agent"
        assert program.ends() == 0


@pytest.mark.slow
@pytest.mark.row("L2")
def test_ten_thousand_calls_and_a_slow_actor() -> None:
    """All answers come, in order, and the slow rank keeps nobody else waiting."""
    victims = proc_mesh(n=2).spawn("victim", Victim).get(LONG)
    slow, quick = victims.slice(n=0), victims.slice(n=1)
    calls = [slow.keep.call_one(index) for index in range(10_000)]
    assert quick.echo.call_one(1).get(LONG) == 1
    assert [call.get(LONG) for call in calls] == list(range(1, 10_001))
    assert slow.all_kept.call_one().get(LONG) == list(range(10_000))


@pytest.mark.row("S6")
@pytest.mark.nightly
def test_a_million_calls() -> None:
    """As many as fit are under way at a time."""
    victims = proc_mesh(n=1).spawn("victim", Victim).get(LONG)
    calls: deque[Any] = deque()
    for index in range(1_000_000):
        calls.append(victims.echo.call_one(index))
        if len(calls) == 10_000:
            assert calls.popleft().get(LONG) == index - 9_999
    assert [call.get(LONG) for call in calls] == list(range(990_001, 1_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"a": 1, "b": 1, "c": 1}, {"n": 64}, {"h": 2, "g": 16}], ids=str)
def test_odd_shapes(sizes: dict[str, Any]) -> None:
    name = "n" * 64
    victims = proc_mesh(name=name, engine=LocalEngine(2), **sizes).spawn(name, Victim)
    pids = victims.pid.call().get(2 * LONG).values()
    assert len(set(pids)) == len(victims)
    os.kill(pids[-1], signal.SIGKILL)
    error = victims.wait_for.call("/nowhere/gate").exception(LONG)
    assert isinstance(error, ProcessDied) and error.rank == len(victims) - 1


def victims_of(error: BaseException | None) -> set[int]:
    """Return the ranks that an error names, or one that there is not, if it names none."""
    return {error.rank, *(place.rank for place in error.others)} if isinstance(error, SupervisionError) else {-1}


def names_all(victims: Any, dead: set[int]) -> bool:
    return victims_of(victims.echo.call(0).exception(LONG)) == dead


@pytest.mark.slow
@pytest.mark.row("X3")
def test_a_storm_of_deaths() -> None:
    """Threads call while ranks are killed at random: each call ends, in its value or an error that names a victim."""
    dice = random.Random(7)
    for _ in range(5):
        victims = proc_mesh(n=8, engine=LocalEngine(2)).spawn("victim", Victim).get(LONG)
        pids = victims.pid.call().get(LONG).values()
        dead: set[int] = set()
        wrong: list[object] = []

        def call(victims: Any = victims, dead: set[int] = dead, wrong: list[object] = wrong) -> None:
            for index in range(200):
                error = victims.echo.call(index).exception(LONG)
                if error is not None and not victims_of(error) <= dead:
                    wrong.append(error)

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for rank in dice.sample(range(8), 5):
            dead.add(rank)
            os.kill(pids[rank], dice.choice([signal.SIGKILL, signal.SIGSEGV]))
        for thread in threads:
            thread.join(LONG)
        assert not any(thread.is_alive() for thread in threads)
        assert not wrong
        # Somebody has to be told of those that died behind the last call, or the next wait for any other is.
        assert holds_within(LONG, functools.partial(names_all, victims, dead))
        for rank in set(range(8)) - dead:
            assert victims.slice(n=rank).echo.call_one(rank).get(LONG) == rank
