"""A program on a Ray cluster: ``python ray_program.py WHAT``."""

from __future__ import annotations

import os
import socket
import sys
import time

from meshrt import Actor, MeshError, ProcMesh, RayEngine, endpoint, proc_mesh, shutdown_context


class Worker(Actor):
    @endpoint
    def place(self) -> tuple[str, str, str]:
        return socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES", "none"), os.environ.get("GREETING", "")

    @endpoint
    def hang(self) -> None:
        time.sleep(1000)


def places(mesh: ProcMesh) -> list[tuple[str, str, str]]:
    """Where the ranks of a mesh are."""
    return mesh.spawn("worker", Worker).place.call().get(60).values()


def left_in_ray() -> list[str]:
    """What of this program is left there, and still used."""
    import ray
    from ray._private.state import actors
    from ray.util import placement_group_table

    states = [row["State"] for row in actors().values() if row["ActorClassName"] == "HostAgent"]
    groups = [row["state"] for row in placement_group_table().values()]
    assert ray.is_initialized()
    return [state for state in [*states, *groups] if state not in ("DEAD", "REMOVED")]


def meshes() -> None:
    """Meshes of the same engine share their hosts; a larger one gets more."""
    with proc_mesh(hosts=2, gpus=2, engine="ray") as mesh:
        first = places(mesh)
        print("devices", {devices for _, devices, _ in first}, "ranks", len(first))
        with proc_mesh(hosts=3, gpus=1, engine="ray") as larger:
            second = [host for host, _, _ in places(larger)]
            print("hosts", sorted(second), second[:2] == list(dict.fromkeys(host for host, _, _ in first)))
    # Not one CPU is left on some nodes: the agents of the first engine go on until the program ends.
    shutdown_context()
    print("left", left_in_ray())
    packed = RayEngine("PACK", {"CPU": 1, "GPU": 0}, {"env_vars": {"GREETING": "hello"}}, timeout=100)
    with proc_mesh(hosts=2, gpus=2, engine=packed) as mesh:
        print("packed", {(devices, greeting) for _, devices, greeting in places(mesh)}, len(set(places(mesh))))
        print("without hosts", len(places(proc_mesh(gpus=2, engine=packed))))


def pending() -> None:
    """More is asked for than there is."""
    try:
        proc_mesh(hosts=3, gpus=2, engine=RayEngine(resources={"CPU": 1, "disk": 2}, timeout=7))
    except MeshError as error:
        print(type(error).__name__, error)
    import ray  # the connection of the engine

    print("left", left_in_ray(), ray.is_initialized())
    print("at the end", len(places(proc_mesh(gpus=2, engine="ray"))))  # it ends with the program, while Ray is there


def wait_for_loss() -> None:
    """A host is lost while a call waits; the next mesh has another one."""
    with proc_mesh(hosts=2, gpus=1, engine="ray") as mesh:
        print("hosts", *(host for host, _, _ in places(mesh)), flush=True)
        try:
            mesh.spawn("second", Worker).hang.call().get(100)
        except MeshError as error:
            print(f"lost {type(error).__name__}: {error}".replace("\n", " "), flush=True)
    with proc_mesh(hosts=2, gpus=1, engine="ray") as mesh:
        print("hosts", *(host for host, _, _ in places(mesh)), flush=True)


def restart() -> None:
    """A host is lost, and its ranks are started again on another node."""
    with proc_mesh(hosts=2, gpus=2, engine="ray", devices="own") as mesh:
        workers = mesh.spawn("worker", Worker, max_restarts=1)
        print("places", [(host, device) for host, device, _ in workers.place.call().get(60).values()])
        call = workers.hang.call()
        print("hosts", *mesh.hosts.names, flush=True)
        try:
            call.get(100)
        except MeshError as error:
            print(f"lost {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        second = workers.slice(hosts=1).place.call().get(150).values()
        print("again", [(host, device) for host, device, _ in second], flush=True)


{"meshes": meshes, "pending": pending, "loss": wait_for_loss, "restart": restart}[sys.argv[1]]()
