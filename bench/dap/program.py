"""``python -m bench.dap.program RANKS``: a program that an IDE attaches to; takes orders from standard input.

``step``: a call of all ranks, through the
line that is marked; ``sleep``: a call of all ranks that blocks for an hour. It writes ``done`` at first, when all
ranks serve, and behind each order.
"""

import sys
import time

from meshrt import Actor, endpoint, proc_mesh, shutdown_context

__all__ = ["Walker", "main"]


class Walker(Actor):
    """What a person looks at."""

    def __init__(self) -> None:
        self.steps = 0

    @endpoint
    def step(self) -> int:
        """Walk through a line at which an IDE stops."""
        self.steps += 1
        return self.steps  # @here

    @endpoint
    def sleep(self) -> None:
        """Block in a system call."""
        time.sleep(3600)


def main(ranks: int) -> None:
    """Run orders until standard input ends."""
    procs = proc_mesh(gpus=ranks, dap=0)
    walkers = procs.spawn("walker", Walker).get()
    walkers.step.call().get()
    print("done", flush=True)
    for line in sys.stdin:
        if line.strip() == "step":
            walkers.step.call().get()
        else:
            walkers.sleep.call().get()
        print("done", flush=True)
    procs.stop()
    shutdown_context()


if __name__ == "__main__":
    main(int(sys.argv[1]))
