"""Programs that fail, and what they say: ``python examples/failures.py crash``, ``store`` or ``unclear``.

docs/failures.md reads the reports.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from meshrt import Actor, ActorMesh, current_rank, endpoint, proc_mesh


class Store(Actor):
    """Holds the weights for everybody."""

    @endpoint
    def weights(self, step: object) -> list[float]:
        if step == 3:
            print("step 3: growing the table")
            time.sleep(1)  # until all have asked, and wait
            os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does when there is no memory left
        return [0.5] * 4


class Trainer(Actor):
    """Trains on its share of the data."""

    def __init__(self, store: ActorMesh[Store] | None = None) -> None:
        self.store = store

    @endpoint
    def train(self, step: int) -> float:
        batch = {"step": step, "inputs": [1.0, 2.0]}
        if self.store is None and current_rank().rank == 13:
            del batch["inputs"]  # a shard without data
        return self.forward(batch)

    def forward(self, batch: dict[str, object]) -> float:
        if self.store is not None:
            weights = self.store.weights.call_one(batch["step"]).get()
            return float(sum(weights))
        try:
            inputs = batch["inputs"]
        except KeyError as error:
            raise ValueError(f"bad batch at step {batch['step']}") from error
        time.sleep(60)  # the others wait for everybody's gradients
        return float(len(str(inputs)))

    @endpoint
    def check(self) -> None:
        rank = current_rank().rank
        with open(os.devnull, "w"):  # closing it may take a while, or no time at all
            if rank == 1:
                raise RuntimeError("replicas differ")
            if rank == 2:
                raise LookupError("no checksum of rank 1")


def crash() -> None:
    """One rank of 16 meets a batch without data."""
    with proc_mesh(hosts=4, gpus=4, name="train") as mesh:
        trainer = mesh.spawn("trainer", Trainer).get()
        trainer.train.call(3).get()


def store() -> None:
    """The process that everybody asks for the weights is killed."""
    with proc_mesh(n=1, name="store") as home, proc_mesh(hosts=2, gpus=4, name="train") as mesh:
        weights = home.spawn("weights", Store)
        trainer = mesh.spawn("trainer", Trainer, weights).get()
        for step in range(10):
            trainer.train.call(step).get()


def unclear() -> None:
    """Two ranks complain about each other."""
    with proc_mesh(n=4, name="train") as mesh:
        mesh.spawn("trainer", Trainer).get().check.call().get()


if __name__ == "__main__":
    names = {"crash": crash, "store": store, "unclear": unclear}
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        sys.exit(f"usage: python examples/failures.py {'|'.join(names)}")
    names[sys.argv[1]]()
