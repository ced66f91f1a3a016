"""A program on two machines for commands that look at it: ``python working.py WHAT``, ``work`` until a file exists."""

from __future__ import annotations

import json
import os
import sys
import time

from meshrt import Actor, ActorMesh, current_rank, endpoint, proc_mesh
from meshrt.engine.command import CommandEngine

#: For each host: its name, and what the command of its agent begins with.
HOSTS = json.loads(os.environ["AGENTS"])


class Worker(Actor):
    def __init__(self) -> None:
        self.data = bytearray(5_000_000)

    @endpoint
    def run(self) -> int:
        count = 0
        while "OVER" not in os.environ:
            count = self.next(count)
        return count

    def next(self, count: int) -> int:
        time.sleep(0.05)
        return count + 1  # @next

    @endpoint
    def step(self, value: int) -> int:
        time.sleep(0.01)
        return value + current_rank().rank

    @endpoint
    def finish(self) -> None:
        os.environ["OVER"] = "1"

    @endpoint
    def ask(self, others: ActorMesh[Worker]) -> list[int]:
        return others.step.call(1).get(60).values()

    @endpoint
    def hold(self) -> int:
        breakpoint()
        return 7

    @endpoint
    def fail(self) -> None:
        if current_rank().rank == 3:
            raise ValueError("as asked")


def main() -> None:
    what, *files = sys.argv[1:]
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    with proc_mesh(hosts=2, gpus=2, engine=engine, name="mesh") as mesh:
        workers = mesh.spawn("worker", Worker)
        if what == "fail":
            workers.fail.call().get(60)
        if what == "hold":
            print("held", workers.hold.call().get(3).values())
            return
        running = workers.run.call()
        helper = mesh.spawn("helper", Worker)
        asker = mesh.slice(hosts=0, gpus=0).spawn("asker", Worker)
        while not os.path.exists(files[0]):
            asker.ask.call_one(helper.slice(hosts=1)).get(60)
        helper.finish.call().get(60)
        print("ran", len(running.get(60)))


main()
