"""What the programs of these rows have in common, whoever runs them: how calls and arrays are measured, and told."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bench.peers.protocol import PAGE, Array, filled
from bench.scenarios import Values, expect

__all__ = ["DEATHS", "in_blocks", "measure_arrays", "play"]

SIZE = 64 << 20
DEATHS = 10
BLOCK = 25
"""Calls in a row before another function has its turn. Fewer would leave none of them with warm caches."""


def in_blocks(count: int, *functions: Callable[[], object], block: int = BLOCK) -> list[float]:
    """Return the median seconds of each function over ``count`` calls or a few more; they take turns by blocks."""
    taken: list[list[float]] = [[] for _ in functions]
    clock = time.perf_counter
    for _ in range(-(-count // block)):
        for function, seconds in zip(functions, taken, strict=True):
            for _ in range(block):
                begin = clock()
                function()
                seconds.append(clock() - begin)
    return [statistics.median(each) for each in taken]


def measure_arrays(
    put_all: Callable[[Array], list[int]], ranks: int, quick: bool, transfer: Callable[[int], object] | None = None
) -> Values:
    """Send one array to all ranks, which answer with the sums over its pages.

    Args:
        put_all: Sends an array, and returns the sums.
        ranks: How many there are.
        quick: Measure less often.
        transfer: Sends so many bytes to one machine, without a runtime; the two take turns.
    """
    array = filled(SIZE)
    others: list[Callable[[], object]] = [] if transfer is None else [partial(transfer, SIZE)]

    def put() -> None:
        array[0] = (array[0] + 1) % 100
        expect(put_all(array), [SIZE // PAGE - 1 + int(array[0])] * ranks, "sums over the pages")

    for function in (put, *others):
        function()
    before, count = sent(), 2 if quick else 5
    taken = in_blocks(count, put, *others, block=1)
    total = (sent() - before) / count - SIZE * len(others)
    values = {"hosts_array": taken[0], "hosts_sent": total / SIZE}
    return values if transfer is None else values | {"hosts_array_ratio": taken[0] / taken[1]}


def sent() -> int:
    """Return the bytes that this machine has sent by its interface."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("eth0"))


def play(parts: Mapping[str, Callable[[int, bool], Values]]) -> None:
    """Measure what the command line names, ``WHAT RANKS QUICK``, and print the values as JSON."""
    what, ranks, quick = sys.argv[1:]
    print(json.dumps(parts[what](int(ranks), quick == "1")), flush=True)
