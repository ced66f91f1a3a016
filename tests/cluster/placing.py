"""What a machine has, and what happens when it is lost: ``python placing.py WHAT``."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

from meshrt import Actor, ActorMesh, MeshError, SpawnError, UsageError, endpoint, proc_mesh
from meshrt.engine.command import CommandEngine

#: For each host: its name, and what the command of its agent begins with.
HOSTS = json.loads(os.environ["AGENTS"])


class Worker(Actor):
    @endpoint
    def place(self) -> str:
        return socket.gethostname()

    @endpoint
    def ask(self, others: ActorMesh[Worker]) -> list[str]:
        """Where others are, by calls from rank to rank."""
        return others.place.call().get(60).values()

    @endpoint
    def hang(self) -> None:
        time.sleep(1000)

    @endpoint
    def gpu(self) -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]


def limits(engine: CommandEngine) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "1"}
    with proc_mesh(hosts=2, engine=engine, env=env) as mesh:
        print("gpus", mesh.spawn("worker", Worker).gpu.call().get(60).values())
    with proc_mesh(hosts=2, gpus=2, engine=engine, devices="own") as mesh:
        print("own", mesh.spawn("worker", Worker).gpu.call().get(60).values())
    with proc_mesh(hosts=2, gpus=2, engine=engine) as mesh:
        print("all", mesh.spawn("worker", Worker).gpu.call().get(60).values())
    refused: list[dict[str, Any]] = [
        {"hosts": 2, "gpus": 20},
        {"hosts": 2, "env": {"CUDA_VISIBLE_DEVICES": "2"}},
        {"hosts": 2, "gpus": 3, "devices": "own"},
    ]
    for options in refused:
        try:
            proc_mesh(**options, engine=engine).get(60)
        except SpawnError as error:
            print(error)


def sizes(engine: CommandEngine) -> None:
    refused: list[dict[str, Any]] = [{"n": 5}, {"hosts": 4}]
    for wrong in refused:
        try:
            proc_mesh(**wrong, engine=engine)
        except UsageError as error:
            print(error)
    with proc_mesh(n=4, engine=engine) as mesh:
        print("even", mesh.spawn("worker", Worker).place.call().get(60).values())
    with proc_mesh(hosts=1, n=5, engine=engine) as mesh:
        print("one", {*mesh.spawn("worker", Worker).place.call().get(60).values()})


def restart(engine: CommandEngine) -> None:
    with proc_mesh(hosts=2, gpus=2, engine=engine, name="mesh") as mesh:
        workers = mesh.spawn("worker", Worker, max_restarts=2)
        first, second = workers.slice(hosts=0), workers.slice(hosts=1)
        # Ranks on the first host: one has called the second host before that is lost, the other has not.
        early, late = (
            mesh.slice(hosts=0, gpus=0).spawn("early", Worker),
            mesh.slice(hosts=0, gpus=1).spawn("late", Worker),
        )
        early.ask.call_one(second).get(60)
        print("places", first.ask.call(second).get(60).values()[0], mesh.hosts.names)
        call = workers.hang.call()
        print("hangs", flush=True)
        begun = time.monotonic()
        try:
            call.get(60)
        except MeshError as error:
            print(f"lost after {time.monotonic() - begun:.1f} s: {type(error).__name__}: {error}", flush=True)
        print("then", second.place.call().get(60).values(), mesh.hosts.names)
        print("asked", late.ask.call_one(second).get(60), second.slice(gpus=0).ask.call_one(late).get(60))
        print("asked", early.ask.call_one(second).get(60))


def main() -> None:
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    {"limits": limits, "sizes": sizes, "restart": restart}[sys.argv[1]](engine)


main()
