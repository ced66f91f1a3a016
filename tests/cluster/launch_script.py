"""A script for ``meshrt launch``: ``launch_script.py WHAT``. It does not say which hosts there are."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time

from meshrt import Actor, ActorMesh, MeshError, endpoint, proc_mesh, this_host
from meshrt.mesh.program import start_root


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


def main() -> None:
    what = sys.argv[1]
    print("argv", sys.argv[1:], __name__, sys.path[0] == os.path.dirname(os.path.abspath(__file__)), flush=True)
    if what == "early":
        sys.exit(7)
    if what == "late":
        with proc_mesh() as first:
            print("first", first.hosts.names, flush=True)
        with proc_mesh(hosts=2) as second:
            print("second", second.hosts.names, flush=True)
        return
    if what == "spare":
        with proc_mesh(hosts=2) as mesh:
            workers = mesh.spawn("worker", Worker, max_restarts=2)
            print("places", workers.place.call().get(60).values(), flush=True)
            with contextlib.suppress(MeshError):
                workers.hang.call().get(60)
            print("then", workers.slice(hosts=1).place.call_one().get(60), mesh.hosts.names, flush=True)
        return
    with proc_mesh() as mesh, proc_mesh(dp=2, tp=2) as other:
        workers = mesh.spawn("worker", Worker)
        print("places", workers.place.call().get(60).values(), mesh.extent, flush=True)
        print("asked", workers.slice(hosts=0).ask.call_one(workers.slice(hosts=1)).get(60), flush=True)
        print("filled", other.hosts.names, other.spawn("other", Worker).place.call().get(60).values(), flush=True)
        with this_host().spawn_procs({"procs": 2}) as here:
            print("here", here.spawn("here", Worker).ask.call(workers).get(60).values(), flush=True)
        if what == "secrets":
            run = start_root().run
            print("secrets", run.secret.hex(), run.certificate and run.certificate.key.hex(), flush=True)
        if what in ("hang", "secrets"):
            print("hangs", flush=True)
            workers.hang.call().get(1000)
        if what == "fail":
            raise ValueError("as asked")


if __name__ == "__main__":
    main()
