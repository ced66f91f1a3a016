"""A program whose hosts use the same process numbers: ``python same_pids.py``; it is told to go on by lines.

The commands that start its agents are in ``AGENTS``; without, it has the hosts of its launcher.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from itertools import chain

import numpy as np

from meshrt import Actor, ActorMesh, MeshError, endpoint, proc_mesh
from meshrt.engine.command import CommandEngine

HOSTS = json.loads(os.environ.get("AGENTS", "{}"))
SIZE = 1_000_000


class Worker(Actor):
    @endpoint
    def place(self) -> tuple[str, int, int]:
        """Host, pid, and that of the agent."""
        return socket.gethostname(), os.getpid(), os.getppid()

    @endpoint
    def total(self, array: np.ndarray) -> int:
        return int(array.sum(dtype=np.int64))

    @endpoint
    def passed_on(self, others: ActorMesh[Worker]) -> list[int]:
        """What all make of an array whose values say which rank has made it."""
        return others.total.call(np.full(SIZE, os.getpid() % 100, np.uint8)).get(60).values()

    @endpoint
    def hang(self) -> None:
        """Be what only a kill ends, and have a child that has left."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print("hangs", flush=True)
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(1000)


def say(*words: object) -> None:
    print(*words, flush=True)


def main() -> None:
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values()))) if HOSTS else None
    with proc_mesh(hosts=2, gpus=2, engine=engine) if engine else proc_mesh(hosts=2, gpus=2) as mesh:
        workers = mesh.spawn("worker", Worker)
        places = workers.place.call().get(60).values()
        say("places", json.dumps(places))
        say("totals", workers.total.call(np.ones(SIZE, np.uint8)).get(60).values())
        expected = Counter(pid % 100 * SIZE for _, pid, _ in places for _ in places)
        passed = workers.passed_on.call(mesh.spawn("taker", Worker)).get(60).values()
        say("passed on", Counter(chain.from_iterable(passed)) == expected)
        sys.stdin.readline()
        say("again", workers.total.call(np.ones(SIZE, np.uint8)).get(60).values())
        with proc_mesh(hosts=2, gpus=1, engine=engine) if engine else proc_mesh(hosts=2, gpus=1) as other:
            other.spawn("worker", Worker).hang.broadcast()
            sys.stdin.readline()
            other.stop(grace=0.1)
        say("stopped")
        call = workers.hang.call()
        try:
            call.get(60)
        except MeshError as error:
            say("lost", type(error).__name__)


if __name__ == "__main__":
    main()
