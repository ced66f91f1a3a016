"""A program whose second host has a full disk: ``python full.py``; it goes on when it is told that the disk is full."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from meshrt import Actor, MeshError, endpoint, proc_mesh
from meshrt.engine.command import CommandEngine

HOSTS = json.loads(os.environ.get("AGENTS", "{}"))
#: Bytes of an array that a rank gets: more than is free on any disk of these machines.
SIZE = 64 << 20


class Worker(Actor):
    @endpoint
    def say(self, lines: int) -> None:
        for number in range(lines):
            print(f"line {number} {'x' * 100}")

    @endpoint
    def total(self, array: np.ndarray) -> int:
        return int(array.sum(dtype=np.int64))

    @endpoint
    def make(self, size: int) -> np.ndarray:
        return np.ones(size, np.uint8)

    @endpoint
    def save(self, path: str) -> None:
        Path(path).write_bytes(bytes(1 << 20))


def main() -> None:
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    with proc_mesh(hosts=2, gpus=1, engine=engine) as mesh:
        workers = mesh.spawn("worker", Worker)
        second = workers.slice(hosts=1, gpus=0)
        print("lengths", workers.total.call(np.ones(1000, np.uint8)).get(60).values(), flush=True)
        sys.stdin.readline()
        workers.say.call(int(sys.argv[1])).get(60)
        print("totals", workers.total.call(np.ones(SIZE, np.uint8)).get(60).values(), flush=True)
        print("made", int(second.make.call_one(SIZE).get(60).sum(dtype=np.int64)), flush=True)
        try:
            second.save.call_one("/tmp/home/checkpoint").get(60)
        except MeshError as error:
            print("save", type(error).__name__, str(error), flush=True)
        workers.save.call("/dev/null").get(60)
        more = proc_mesh(hosts=2, gpus=1, engine=engine)
        print("more", more.spawn("worker", Worker).total.call(np.ones(1000, np.uint8)).get(60).values(), flush=True)


if __name__ == "__main__":
    main()
