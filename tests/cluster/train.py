"""A script for ``meshrt launch``: ``train.py WHAT``; which hosts there are is not said in it."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from meshrt import Actor, ActorMesh, current_rank, endpoint, proc_mesh


class Trainer(Actor):
    @endpoint
    def place(self) -> tuple[int, str]:
        return current_rank().rank, socket.gethostname()

    @endpoint
    def others(self, mesh: ActorMesh[Trainer]) -> list[tuple[int, str]]:
        """Where others are, by calls from rank to rank."""
        return mesh.place.call().get(60).values()

    @endpoint
    def loaded(self, library: str) -> bool:
        """Whether a library is in this process or in the one that it was forked from."""
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in (os.getpid(), os.getppid())]
        return any(library in text for text in maps)

    @endpoint
    def processors(self) -> int:
        return len(os.sched_getaffinity(0))

    @endpoint
    def hang(self) -> None:
        print("hangs", flush=True)
        time.sleep(1000)

    @endpoint
    def die(self) -> None:
        os._exit(9)


def main() -> int:
    what, *rest = sys.argv[1:]
    with proc_mesh() if what == "gpus" else proc_mesh(hosts=2, gpus=2) as mesh:
        trainers = mesh.spawn("trainer", Trainer)
        for rank, host in trainers.place.call().get(60).values():
            print(f"rank {rank} is on {host}", flush=True)
        asked = trainers.slice(hosts=0, gpus=0).others.call_one(trainers.slice(hosts=1)).get(60)
        print("rank 0 has asked", *(f"{rank} on {host}" for rank, host in asked), flush=True)
        print("the script is on", socket.gethostname(), "with", rest, flush=True)
        print("MPI is loaded:", any(trainers.loaded.call("libmpi").get(60).values()), flush=True)
        if what == "processors":
            print("processors", trainers.processors.call().get(60).values(), "of", os.cpu_count(), flush=True)
        if what == "hang":
            trainers.hang.call().get(1000)
        if what == "die":
            trainers.slice(hosts=1, gpus=0).die.call_one().get(60)
        if what == "raise":
            raise ValueError("as asked")
        if what == "exit":
            return int(rest[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
