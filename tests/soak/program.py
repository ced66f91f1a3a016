"""The program under the soak: a script that calls a mesh of ranks without end, however often parts of it are killed.

``python program.py REPORT`` prints nothing. It rewrites REPORT, one JSON object, several times a second; the file is
replaced as a whole, so that a reader never sees half of one, and a full disk only delays it.
"""

from __future__ import annotations

import asyncio
import collections
import faulthandler
import gc
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import meshrt
from meshrt import Actor, LocalEngine, MeshError, context, current_rank, endpoint, proc_mesh
from meshrt.errors import CallTimeout

#: Ranks: two hosts of eight. They are killed, and have meshes one after the other.
HOSTS, GPUS = 2, 8
#: The mesh that stays as long as the program, on an agent of its own: none of its processes is killed, so that it shows
#: whether they grow. Its name is known to `tests.soak.samples`.
STEADY, STEADY_GPUS = "steady", 4
#: Seconds after which a call that has neither answered nor failed is a finding. Nothing is stopped for that long.
PATIENCE = 60.0
#: Seconds for which a mesh is used, if nothing breaks it before.
LIFE = 40.0


class Worker(Actor):
    """Does a little of everything."""

    def __init__(self) -> None:
        self.last = -1
        self.kept: Any = None

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def count(self, number: int) -> int:
        """Raise if a call of the one caller came out of order or twice."""
        if number <= self.last:
            raise AssertionError(f"call {number} came behind call {self.last}")
        self.last = number
        return number

    @endpoint
    def total(self, array: np.ndarray[Any, Any]) -> float:
        self.kept = array
        return float(array[::4096].sum())

    @endpoint
    def made(self, size: int) -> np.ndarray[Any, Any]:
        return np.full(size, float(context().actor_instance.rank.rank))

    @endpoint
    def say(self, text: str) -> None:
        print(text, flush=True)

    @endpoint
    def fail(self) -> None:
        raise LookupError("on purpose")


class Neighbour(Actor):
    """Has an event loop, and calls the workers from its rank."""

    @endpoint
    async def ask(self, workers: Any) -> int:
        rank = (current_rank().rank + 1) % len(workers)
        return int(await workers.flatten("rank").slice(rank=rank).pid.call_one())


class Journal:
    """How calls ended, and what must not have happened. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.ended: collections.Counter[str] = collections.Counter()
        self.findings: list[str] = []
        self.meshes = 0

    def count(self, how: str) -> None:
        with self._lock:
            self.ended[how] += 1

    def find(self, what: str) -> None:
        with self._lock:
            self.findings.append(what)

    def judge(self, error: BaseException, what: str) -> None:
        """Count a call that failed; a time-out and an error that is not the runtime's are findings."""
        self.count(type(error).__name__)
        if isinstance(error, (CallTimeout, AssertionError)) or not isinstance(error, MeshError):
            self.find(f"{what}: {type(error).__name__}: {error}")

    def plain(self) -> dict[str, Any]:
        with self._lock:
            return {
                "ended": dict(self.ended),
                "findings": self.findings[-20:],
                "meshes": self.meshes,
                "at": time.time(),
            }


class Round:
    """One mesh, and the threads that call it until it has lost a rank for good or its time is over.

    Args:
        name: Of the mesh, and in front of those of its actors; "": no matter.
    """

    def __init__(self, journal: Journal, seed: int, name: str = "") -> None:
        self.journal = journal
        self.random = random.Random(seed)
        self.over = threading.Event()
        self.numbers = itertools.count()
        self.name = name
        self.hosts, self.gpus = (1, STEADY_GPUS) if name else (HOSTS, GPUS)

    def run(self) -> None:
        engine = None if self.name else LocalEngine(HOSTS)
        with proc_mesh(hosts=self.hosts, gpus=self.gpus, engine=engine, name=self.name) as mesh:
            self.workers = mesh.spawn(f"{self.name}worker", Worker, max_restarts=1000)
            self.neighbours = mesh.spawn(f"{self.name}neighbour", Neighbour, max_restarts=1000)
            self.workers.get(PATIENCE)
            self.neighbours.get(PATIENCE)
            self.journal.meshes += 1
            kinds = (self.small, self.arrays, self.loop, self.mixed)
            threads = [threading.Thread(target=self.repeat, args=(kind,), name=kind.__name__) for kind in kinds]
            for thread in threads:
                thread.start()
            self.over.wait(None if self.name else LIFE)
            self.over.set()
            for thread in threads:
                thread.join(2 * PATIENCE)
                if thread.is_alive():
                    self.journal.find(f"the calls of {thread.name}() neither answered nor failed")

    def repeat(self, kind: Any) -> None:
        lost = 0
        while not self.over.is_set():
            try:
                kind()
            except Exception as error:
                self.journal.judge(error, kind.__name__)
                # A rank that is started again fails calls for a moment; one that is lost fails all of them.
                lost = lost + 1 if isinstance(error, MeshError) else 0
                if lost == 20:
                    self.over.set()
                self.over.wait(0.05)
            else:
                lost = 0

    def answered(self, right: bool, what: str) -> None:
        self.journal.count("answered")
        if not right:
            self.journal.find(f"{what}: a wrong value")

    def small(self) -> None:
        """Many calls in flight, in order."""
        first = next(self.numbers)
        numbers = [first, *itertools.islice(self.numbers, 49)]
        calls = [self.workers.count.call(number) for number in numbers]
        errors = [call.exception(PATIENCE) for call in calls]
        for number, call, error in zip(numbers, calls, errors, strict=True):
            if error is None:
                self.answered(set(call.get().values()) == {number}, "count")
            else:
                self.journal.judge(error, "count")

    def arrays(self) -> None:
        """Through shared memory, by hand and without, and back."""
        size = self.random.choice((1 << 14, 1 << 17, 1 << 19))
        array = np.ones(size)
        want = float(array[::4096].sum())
        self.answered(set(self.workers.total.call(array).get(PATIENCE).values()) == {want}, "total")
        self.answered(set(self.workers.total.call(meshrt.put(array)).get(PATIENCE).values()) == {want}, "total of put")
        rank = self.random.randrange(self.hosts * self.gpus)
        result = self.workers.flatten("rank").slice(rank=rank).made.call_one(size).get(PATIENCE)
        self.answered(float(result[-1]) == rank, "made")

    def loop(self) -> None:
        """Calls that are awaited, and calls of ranks to ranks."""

        async def calls() -> None:
            async with asyncio.timeout(PATIENCE):
                pids, asked = await asyncio.gather(self.workers.pid.call(), self.neighbours.ask.call(self.workers))
            self.answered(len(set(pids.values())) == self.hosts * self.gpus, "pid")
            self.answered(len(asked.values()) == self.hosts * self.gpus, "ask")

        asyncio.run(calls())

    def mixed(self) -> None:
        """Output, exceptions, broadcasts, streams, slices."""
        host = self.workers.slice(hosts=self.random.randrange(self.hosts))
        host.say.call("x" * self.random.randrange(4096)).get(PATIENCE)
        error = self.workers.slice(gpus=self.random.randrange(self.gpus)).fail.call().exception(PATIENCE)
        self.answered(isinstance(error, MeshError), "fail")
        self.workers.say.broadcast("broadcast")
        for answer in self.workers.pid.stream():
            answer.get(PATIENCE)
        self.journal.count("answered")


def report(journal: Journal, path: Path) -> None:
    """Write the journal again and again. A thread of its own.

    What only the collector frees is none that stays: an error that a call has raised leads to the arrays of its caller.
    """
    while True:
        gc.collect()
        new = path.with_suffix(".new")
        try:
            new.write_text(json.dumps(journal.plain()))
            os.replace(new, path)
        except OSError:
            pass  # the disk is full for a while
        time.sleep(0.5)


def be_steady(journal: Journal, seed: int) -> None:
    """Use the mesh that stays, to the end of the program."""
    try:
        Round(journal, seed, STEADY).run()
    except Exception as error:
        journal.judge(error, STEADY)
    journal.find("the mesh whose processes are not killed was lost")


def main(path: str, seed: str) -> None:
    faulthandler.register(signal.SIGQUIT)  # for what does not end
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what runs in the background ignore it
    journal = Journal()
    meshrt.unhandled_fault_hook = lambda failure: journal.count("failure of a mesh")
    threading.Thread(target=report, args=(journal, Path(path)), daemon=True).start()
    threading.Thread(target=be_steady, args=(journal, int(seed)), daemon=True).start()
    for number in itertools.count(int(seed) * 1000):
        try:
            Round(journal, number).run()
        except Exception as error:
            journal.judge(error, "a mesh")
        gc.collect()


main(*sys.argv[1:])
