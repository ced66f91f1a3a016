"""Who is told when ranks fail: ``python examples/supervised.py``.

A coordinator makes the workers, has each started again once, and decides what becomes of failures beyond that.
"""

from __future__ import annotations

import os
import signal

from meshrt import Actor, MeshFailure, ProcessDied, Restart, context, endpoint, proc_mesh


class Worker(Actor):
    """Sums up its share; rank 1 is killed in the middle of it once, rank 2 whenever it tries."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    @endpoint
    def add(self) -> int:
        rank, first = context().actor_instance.rank["n"], "MESHRT_INCARNATION" not in os.environ
        if rank == 2 or (rank == 1 and first):
            os.kill(os.getpid(), signal.SIGKILL)
        return sum(self.numbers)


class Coordinator(Actor):
    """Owns the mesh of the workers."""

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.workers = proc_mesh(n=4, name="workers").spawn(
            "worker", Worker, [1, 2, 3], max_restarts=1, on_restart=self.restarted
        )

    def restarted(self, restart: Restart) -> None:
        print(f"back again: {restart.place.where}", flush=True)

    @endpoint
    def add(self) -> str:
        """Ask those that are there, twice if need be."""
        sums = [self.ask(rank) for rank in range(4) if rank not in self.lost]
        return f"{sum(sums)} from {len(sums)} workers"

    def ask(self, rank: int) -> int:
        worker = self.workers.slice(n=rank)
        try:
            return int(worker.add.call_one().get())
        except ProcessDied as error:
            if not error.may_have_run:
                return 0
        return self.ask(rank)

    @endpoint
    def has_lost(self) -> set[int]:
        return self.lost

    def __supervise__(self, failure: MeshFailure) -> bool:
        print(f"without rank {failure.ranks[0]} from now on: {failure.error}", flush=True)
        self.lost.update(failure.ranks)
        return len(self.lost) <= 2  # with fewer than half of them it is for others to decide

    def __cleanup__(self, exc: BaseException | None) -> None:
        print("stopped" if exc is None else f"ended: {exc}", flush=True)


def main() -> None:
    """Add twice."""
    with proc_mesh(name="head") as head:
        coordinator = head.spawn("coordinator", Coordinator)
        print(coordinator.add.call_one().get())
        while not coordinator.has_lost.call_one().get():
            pass  # it is told in a moment
        print(coordinator.add.call_one().get())


if __name__ == "__main__":
    main()
