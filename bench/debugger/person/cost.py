"""What a debugger that is loaded, and not used, costs the program: two programs of one rank each, turn by turn.

One of them stops at a breakpoint and is let go on; the other never does. Two processes that do the same differ by up to
a fifth for as long as they live, by where their memory happens to lie. So each value is the ratio of the two
programs after the breakpoint, divided by their ratio before it. Everything shares one core, so that neither is ever
luckier than the other with where the kernel puts it.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from bench.debugger.person.acts import Scene
from bench.debugger.person.meshrt_desk import MeshrtDesk
from bench.scenarios import Values

__all__ = ["CALLS", "TURNS_OF_THE_LOOP", "Probe", "cost", "probe", "ratio"]

CALLS = 500
TURNS_OF_THE_LOOP = 30_000


class Probe:
    """A program with one rank, :mod:`bench.debugger.probe`."""

    def __init__(self, process: subprocess.Popen[str], answers: IO[str]) -> None:
        self.pid = process.pid
        self._process = process
        self._answers = answers

    def tell(self, order: str, number: int = 0) -> None:
        """Have it do something."""
        stdin: Any = self._process.stdin
        stdin.write(f"{order} {number}\n")
        stdin.flush()

    def answer(self) -> float:
        """Wait until it has done that; return the seconds that it took."""
        line = self._answers.readline()
        if not line:
            raise RuntimeError("a probe has ended")
        seconds: float = json.loads(line)
        return seconds


@contextmanager
def probe(*port: int) -> Iterator[Probe]:
    """Start a probe, and end it; ``port``: one at which an IDE can attach."""
    ours, theirs = os.pipe()
    command = [sys.executable, "-m", "bench.debugger.probe", str(theirs), *map(str, port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs], text=True)
    os.close(theirs)
    with process, open(ours) as answers:
        yield Probe(process, answers)
        process.communicate()


def cost(scene: Scene) -> Values:
    """Return how many times longer a call takes once the debugger is loaded, and a loop behind a breakpoint."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    turns = scene.settings.repeats(30)
    with probe() as plain, probe() as stopped:
        calls = ratio(plain, stopped, "call", "call", CALLS, turns)
        loops = ratio(plain, stopped, "loop", "loop", TURNS_OF_THE_LOOP, turns)
        loops_after = ratio(plain, stopped, "loop", "stop", TURNS_OF_THE_LOOP, turns)
        calls_after = ratio(plain, stopped, "call", "call", CALLS, turns)
    return {"debug_call": calls_after / calls, "debug_loop": loops_after / loops}


def ratio(plain: Probe, other: Probe, plain_order: str, other_order: str, number: int, turns: int) -> float:
    """Return the median of other / plain over the turns, in each of which one is first; one turn does not count."""
    ratios = []
    for turn in range(turns + 1):
        seconds = {}
        pair = [(plain, plain_order), (other, other_order)]
        for each, order in pair if turn % 2 else reversed(pair):
            each.tell(order, number)
            if order == "stop":
                let_go_on(each)
            seconds[each] = each.answer()
        ratios.append(seconds[other] / seconds[plain])
    return statistics.median(ratios[1:])


def let_go_on(stopped: Probe) -> None:
    """Wait for the breakpoint of a probe, go on from it, and leave."""
    desk = MeshrtDesk(stopped.pid)
    desk.wait(1)
    desk.go_on()
    desk.close()
