"""A program that strangers attack: ``python guarded.py``; it says where it listens, and calls when it is told to.

Its own actor, its ranks and the stores of its hosts listen at ports. What it prints first is one line of JSON:
``certificate``, with the key, ``secret`` (in hex), and ``doors``: for each, whose it is, an address, the name to ask
for, the role and the endpoint of the handshake.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

from meshrt import Actor, ActorMesh, endpoint, proc_mesh, this_proc
from meshrt.engine.command import CommandEngine
from meshrt.mesh.program import start_root
from meshrt.wire.handshake import ROLE_AGENT, ROLE_DATA, ROLE_STORE

HOSTS = json.loads(os.environ.get("AGENTS", "{}"))
Door = tuple[str, str, int, str, int, str]


class Worker(Actor):
    @endpoint
    def ask(self, others: ActorMesh[Worker]) -> list[int]:
        return others.pid.call().get(60).values()

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def doors(workers: ActorMesh[Worker]) -> Iterator[Door]:
    """Yield all that listens at a port."""
    root = start_root()
    (own,) = root.registry.own
    host, port = root.run.ports[0]
    yield "the script", host, port, "agent/1", ROLE_AGENT, "agent/1"
    yield "an actor of the script", host, port, f"rank/{own}/0", ROLE_DATA, f"{own}/0/own"
    target = workers._target
    for rank, address in enumerate(target.address.hosts):
        host, port = address.ports[0]
        yield f"rank {rank}", host, port, f"rank/{target.mesh_id}/{rank}", ROLE_DATA, f"{target.mesh_id}/{rank}/worker"
        yield f"store {rank}", host, port, "store", ROLE_STORE, "store"


def main() -> None:
    engine = CommandEngine(tuple(HOSTS), tuple(map(tuple, HOSTS.values())))
    with proc_mesh(hosts=2, gpus=1, engine=engine) as mesh:
        workers = mesh.spawn("worker", Worker)
        own = this_proc().spawn("own", Worker)
        first, second = workers.slice(hosts=0, gpus=0), workers.slice(hosts=1, gpus=0)
        print("asked", first.ask.call_one(second).get(60), second.ask.call_one(own).get(60), file=sys.stderr)
        run = start_root().run
        assert run.certificate is not None
        texts = [each.decode() for each in run.certificate]
        said = {"certificate": texts, "secret": run.secret.hex(), "doors": [*doors(workers)]}
        print(json.dumps(said), flush=True)
        for line in sys.stdin:
            answers = [*first.ask.call_one(second).get(60), *second.ask.call_one(own).get(60)]
            print(line.strip(), len(answers), flush=True)


if __name__ == "__main__":
    main()
