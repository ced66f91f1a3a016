"""``python -m bench.debugger.probe FD [PORT]``: one rank of meshrt; takes orders on standard input.

Answers go to ``FD``. ``PORT``: an IDE can attach to it there (0: any); without it none can.

``call N``: the median of ``N`` calls; ``loop N``: a loop of ``N`` turns; ``stop N``: a breakpoint, then that loop in
the same endpoint. The answer is a number of seconds.
"""

import json
import statistics
import sys
import time

from bench.debugger.protocol import ACTOR
from meshrt import Actor, endpoint, proc_mesh, shutdown_context

__all__ = ["Probed", "main"]

RUNS_OF_THE_LOOP = 10


def turn(value: int) -> int:
    """A call, for that is what a forgotten trace function makes slow.

    It makes no number: how long that takes depends on how full the allocator's pools happen to be, by up to a tenth.
    """
    return value ^ 1  # @turn


class Probed(Actor):
    """The actor that may stop."""

    @endpoint
    def ping(self) -> None:
        """Answer at once."""

    @endpoint
    def loop(self, turns: int, stop: bool) -> float:
        """Return the processor time that a loop takes, in seconds; of several runs the shortest."""
        if stop:
            breakpoint()
        taken = []
        for _ in range(RUNS_OF_THE_LOOP):
            begin = time.thread_time()
            value = 1
            for _ in range(turns):
                value = turn(value)
            taken.append(time.thread_time() - begin)
        return min(taken)


def main(descriptor: int, port: int | None = None) -> None:
    """Run orders until standard input ends."""
    procs = proc_mesh(gpus=1, dap=port)
    probed = procs.spawn(ACTOR, Probed).get()
    clock = time.perf_counter
    with open(descriptor, "w") as answers:
        for line in sys.stdin:
            order, number = line.split()
            if order == "call":
                taken = []
                for _ in range(int(number)):
                    begin = clock()
                    probed.ping.call_one().get()
                    taken.append(clock() - begin)
                seconds = statistics.median(taken)
            else:
                seconds = probed.loop.call_one(int(number), stop=order == "stop").get()
            answers.write(json.dumps(seconds) + "\n")
            answers.flush()
    procs.stop()
    shutdown_context()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
