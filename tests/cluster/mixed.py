"""A program with ranks on the machine of the script, which were there first, and on others: all call all."""

from __future__ import annotations

import json
import os
import socket

import numpy as np

from meshrt import Actor, ActorMesh, HostMesh, endpoint, host_mesh, proc_mesh, this_host, this_proc
from meshrt.engine.command import CommandEngine

#: For each host: its name, and what the command of its agent begins with.
HOSTS = json.loads(os.environ["AGENTS"])


class Worker(Actor):
    def __init__(self) -> None:
        self.known: dict[str, ActorMesh[Worker]] = {}

    @endpoint
    def place(self) -> str:
        return socket.gethostname()

    @endpoint
    def meet(self, name: str, others: ActorMesh[Worker]) -> None:
        self.known[name] = others

    @endpoint
    def ask(self, name: str) -> list[str]:
        """Where others are, by calls from rank to rank."""
        return sorted(set(self.known[name].place.call().get(30).values()))

    @endpoint
    def give(self, name: str) -> ActorMesh[Worker]:
        return self.known[name]

    @endpoint
    def total(self, array: np.ndarray) -> int:
        return int(array.sum(dtype=np.int64))

    @endpoint
    def passed_on(self, name: str, size: int) -> set[int]:
        return set(self.known[name].total.call(np.ones(size, np.uint8)).get(30).values())

    @endpoint
    def own_mesh(self) -> list[str]:
        """Where the ranks are of a mesh that this one makes."""
        with proc_mesh(gpus=2) as mesh:
            return sorted(set(mesh.spawn("owned", Worker).place.call().get(60).values()))

    @endpoint
    def made_on(self, hosts: HostMesh) -> list[str]:
        with hosts.spawn_procs() as mesh, this_host().spawn_procs() as own:
            meshes = mesh.spawn("given", Worker), own.spawn("own", Worker)
            return [place for mesh in meshes for place in mesh.place.call().get(60).values()]


def main() -> None:
    script = this_proc().spawn("script", Worker)
    early = proc_mesh(gpus=2, name="early").spawn("early", Worker)
    here = early.place.call().get(60).values()[0]
    # Handles that were made, and given away, when the program had one machine.
    early.meet.call("script", script).get(30)
    script.meet.call_one("early", early).get(30)
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    procs = proc_mesh(hosts=2, gpus=2, engine=engine, name="far")
    far = procs.spawn("far", Worker)
    late = this_host().spawn_procs(per_host={"gpus": 2}, name="late").spawn("late", Worker)
    meshes = {"script": script, "early": early, "far": far, "late": late}
    for asked in meshes.values():
        for name, other in meshes.items():
            asked.meet.call(name, other).get(60)
    for name, asked in meshes.items():
        for met in meshes:
            if name != met:  # an actor would wait for itself
                places = {place for found in asked.ask.call(met).get(60).values() for place in found}
                print(name, "asks", met, sorted("here" if place == here else place for place in places))
    given = early.slice(gpus=0).give.call_one("script").get(30)
    far.meet.call("given", given).get(60)
    print("given", far.ask.call("given").get(60).values()[0] == [here])
    print("arrays", far.slice(hosts=0, gpus=0).passed_on.call_one("early", 3_000_000).get(60))
    print("arrays", early.slice(gpus=0).passed_on.call_one("far", 3_000_000).get(60))
    print("made by a rank", far.slice(hosts=1, gpus=0).own_mesh.call_one().get(60))
    hosts = procs.hosts
    print(hosts, hosts.slice(hosts=1).names)
    one = hosts.slice(hosts=1).spawn_procs(per_host={"gpus": 3}).spawn("one", Worker)
    print("on one", one.place.call().get(60).values())
    with host_mesh(2, engine).slice(hosts=0).spawn_procs() as single:
        print("of the engine", single.spawn("single", Worker).place.call_one().get(60), single.sizes)
    print("made by a rank", far.slice(hosts=0, gpus=0).made_on.call_one(hosts).get(60))


main()
