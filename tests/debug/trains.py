"""An actor of which many train, and one goes wrong; ``# @name`` marks a line. Ranks import this module."""

from __future__ import annotations

import threading

import numpy

from meshrt import Actor, current_rank, endpoint
from tests.support.markers import marked_line

__all__ = ["Trains", "line_of"]


def line_of(name: str) -> int:
    """Return the number of the line marked ``# @name``."""
    return marked_line(__file__, name)


class Trains(Actor):
    """``p w self.go.set()`` resumes it."""

    def __init__(self) -> None:
        self.rank = current_rank().rank
        self.go = threading.Event()

    @endpoint
    def train(self, odd: int) -> int:
        weights = numpy.full((4, 4), float(self.rank))
        loss = 0.5 + self.rank / 1000
        text = "\n".join(f"line {n}" for n in range(50))
        if self.rank == odd:
            weights[0, 0], loss = float("nan"), 70.0
        print(f"rank {self.rank} trains" if self.rank == odd else "a rank trains", flush=True)
        breakpoint()  # @train
        return len(text) + int(loss)

    @endpoint
    def compute(self, value: int) -> int:
        return value * 2  # @compute

    @endpoint
    def wait(self) -> int:
        self.go.wait()  # @wait
        return self.rank
