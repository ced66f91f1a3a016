"""A program that goes on: meshes are made, called, killed and stopped, by the script and by a rank that stays.

``python -m tests.faults.long_program`` prints what has grown with each of them, in the script and in that rank, a line
for each table and each type of object. What is bounded has small bounds here, so nothing may.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterator
from typing import Any

import meshrt
from meshrt import Actor, ActorMesh, MeshError, endpoint, proc_mesh
from meshrt.mesh.owner import RankOwner
from meshrt.transport import linktable

__all__: list[str] = []

WAIT = 30
#: Rounds until every table is as long as it gets, and rounds that are measured: what grows with them, twice. What is
#: imported late, or is a sum of many small tables, does so once.
FILL, MEASURED = 40, 60
#: What grows by so many objects grows with each round, or with nearly each.
GROWN = MEASURED * 3 // 4
_PARTS = ("dict", "list", "set", "tuple")
_TABLES = (dict, list, set, deque, OrderedDict, Counter, defaultdict)


class Sizes:
    """How long each table of this process is, and how many objects it has of each type."""

    def __init__(self) -> None:
        gc.collect()
        objects = gc.get_objects()
        self._types = Counter(map(_type_of, objects))
        # Parts of what it tracks: it does not track a dict of texts. Short ones belong to objects of which there may be
        # many, which are not to be kept by this.
        known = {id(part): part for each in objects for part in gc.get_referents(each) if type(part) in _TABLES}
        self._tables = [(table, len(table)) for table in known.values() if len(table) >= 15]

    def grown(self) -> dict[str, str]:
        """Return what has grown since, in words, by what identifies it."""
        gc.collect()
        now = Counter(map(_type_of, gc.get_objects()))
        # Those of Python itself are parts of something else, of which one has several.
        more = {name: count - self._types[name] for name, count in now.items() if name not in _PARTS}
        grown = {name: f"{count} more objects of {name}" for name, count in more.items() if count >= GROWN}
        for table, before in self._tables:
            if len(table) - before >= GROWN:
                grown[str(id(table))] = f"{len(table) - before} more in {', '.join(_names_of(table))}"
        return grown


def _type_of(each: object) -> str:
    return f"{type(each).__module__}.{type(each).__qualname__}".removeprefix("builtins.")


def _names_of(table: Collection[Any]) -> Iterator[str]:
    """Say where a table is: the attributes that it is, and what is first in it."""
    for owner in gc.get_referrers(table):
        if isinstance(owner, dict):
            yield from (f"a field {key!r}" for key, value in owner.items() if value is table)
        else:
            yield f"a {type(owner).__name__}"
    yield f"with {next(iter(table))!r:.100}"


class Worker(Actor):
    """Its process is killed."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def fail(self) -> None:
        raise LookupError("on purpose")

    @endpoint
    def sleep(self) -> None:
        time.sleep(WAIT)


class Steady(Actor):
    """Calls actors of other meshes, which end, and makes meshes of its own."""

    sizes: Sizes

    @endpoint
    def use(self, workers: ActorMesh[Worker]) -> None:
        workers.pid.call().get(WAIT)
        workers.fail.call().exception(WAIT)
        with proc_mesh(gpus=1, name="own") as mesh:
            mesh.spawn("worker", Worker).fail.call().exception(WAIT)

    @endpoint
    def wait_for(self, workers: ActorMesh[Worker]) -> None:
        workers.sleep.call_one().get(WAIT)

    @endpoint
    def use_dead(self, workers: ActorMesh[Worker]) -> None:
        assert workers.pid.call().exception(WAIT) is not None

    @endpoint
    def measure(self) -> None:
        self.sizes = Sizes()

    @endpoint
    def grown(self) -> dict[str, str]:
        return self.sizes.grown()


def small_bounds() -> None:
    """Of what is remembered; in the script, and in the rank."""
    linktable.LOST_MAX = 20
    RankOwner.KEPT = 5


def small_bounds_of_the_root() -> None:
    from meshrt.failure import root, stops
    from meshrt.mesh import alarm, supervision
    from meshrt.mesh.registry import Registry

    small_bounds()
    Registry.KEPT = 8
    root._INCIDENTS, root._MOST, root._ENDS, root._MESHES, root._LONGEST = 2, 20, 5, 10, 0.0
    alarm._REMEMBERED = alarm._READ = supervision._REMEMBERED = stops._REMEMBERED = 10


def one_round(steady: ActorMesh[Steady]) -> None:
    with proc_mesh(gpus=2, name="short", watchdog=WAIT) as mesh:
        workers = mesh.spawn("worker", Worker)
        pids = workers.pid.call().get(WAIT)
        workers.fail.call().exception(WAIT)
        steady.use.call_one(workers).get(WAIT)
        os.kill(pids.values()[1], signal.SIGKILL)
        assert workers.pid.call().exception(WAIT) is not None
        steady.use_dead.call_one(workers).get(WAIT)
        waits = steady.wait_for.call_one(workers.slice(gpus=0))
        mesh.stop(0.0)
    assert isinstance(waits.exception(WAIT), MeshError)


def main() -> None:
    small_bounds_of_the_root()
    meshrt.unhandled_fault_hook = lambda failure: None
    steady = proc_mesh(gpus=1, name="steady", setup=small_bounds).spawn("steady", Steady)
    for _ in range(FILL):
        one_round(steady)
    found = list[dict[str, str]]()
    for _ in range(2):
        steady.measure.call_one().get(WAIT)
        sizes = Sizes()
        for _ in range(MEASURED):
            one_round(steady)
        grown = {"script": sizes.grown(), "rank": steady.grown.call_one().get(WAIT)}
        found.append({f"{where} {key}": text for where, texts in grown.items() for key, text in texts.items()})
    first, second = found
    for key in first.keys() & second.keys():
        print(f"{key.partition(' ')[0]}: {second[key]}")


if __name__ == "__main__":
    # Not as `__main__`: its ranks import the actors.
    from tests.faults import long_program

    long_program.main()
