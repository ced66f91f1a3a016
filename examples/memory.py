"""A leak, and how it is found: ``python examples/memory.py``.

It trains, and looks at itself with ``meshrt memory`` as a person would from another terminal. docs/memory.md reads what
that shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from meshrt import Actor, current_rank, endpoint, proc_mesh

MIB = 1 << 20


class Trainer(Actor):
    """Trains on its share of the data."""

    def __init__(self) -> None:
        self.weights = bytearray(b"w" * (8 * MIB))
        self.head = memoryview(self.weights)[-1000:]
        self.losses: list[float] = []
        self.rejected: list[bytes] = []

    @endpoint
    def train(self, steps: int) -> None:
        for _ in range(steps):
            batch = b"x" * MIB
            loss = self.forward(batch)
            if loss != loss:
                self.rejected.append(batch)  # to look at it later; in the shard of rank 13 every batch is such a one
            self.losses.append(loss)

    def forward(self, batch: bytes) -> float:
        return float("nan") if current_rank().rank == 13 else len(batch) / len(self.weights)


def look(*options: str) -> None:
    """Run ``meshrt memory`` on this program."""
    shown = [os.path.basename(option) for option in options]
    print(" ".join(["$ meshrt memory", *shown]), flush=True)
    subprocess.run([sys.executable, "-m", "meshrt", "memory", *options, str(os.getpid())], check=True)
    print(flush=True)


def main() -> None:
    """Train, look, train, and look again."""
    trainer = proc_mesh(hosts=4, gpus=4).spawn("trainer", Trainer)
    trainer.train.call(20).get()
    with tempfile.TemporaryDirectory() as directory:
        before = os.path.join(directory, "before")
        look()
        look("--vars", "-n", "5", "--save", before)
        trainer.train.call(10).get()
        look("--vars", "-n", "2", "--diff", before)


main()
