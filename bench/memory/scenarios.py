"""``meshrt memory`` beside a running program, the call site of a ``put``, and the deep size of a large object."""

import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench.peers import importable
from bench.peers.protocol import Peer
from bench.scenarios import Settings, Values, expect
from meshrt.memory.sizing import Snapshot
from meshrt.store.put import call_site

__all__ = ["SCENARIOS"]

REFERENCES = 20_000
LISTS = 1_000_000
SITES = 100_000


async def memory(peer: Peer, settings: Settings) -> Values:
    """A person at a terminal, as often as a median needs; and what is counted in one process."""
    keepers: Any = await peer.start(settings.ranks)
    each = REFERENCES // settings.ranks
    expect(keepers.put(each), each * settings.ranks, "references")
    taken = [view(each * settings.ranks, settings.ranks) for _ in range(settings.repeats(10))]
    keepers.stop()
    return {"memory_view": statistics.median(taken), "memory_site": site(), **sizes(settings.repeats(5))}


def view(references: int, ranks: int) -> float:
    """Return the seconds that the command takes, from its start to its exit."""
    command = [sys.executable, "-m", "meshrt", "memory", str(os.getpid()), "--refs", "--json"]
    begin = time.perf_counter()
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    took = time.perf_counter() - begin
    document = json.loads(answer)
    expect(sum(row["count"] for row in document["references"]), references, "references shown")
    expect(sum("rss" in row for row in document["ranks"]), ranks, "ranks shown")
    return took


def site() -> float:
    """Return the seconds that one look for the call site takes."""
    begin = time.perf_counter()
    for _ in range(SITES):
        call_site()
    return (time.perf_counter() - begin) / SITES


def sizes(repeats: int) -> Values:
    """Count a million nested lists; beside it guppy, the fastest that counts them right, if it is there."""
    nested = [[number] for number in range(LISTS)]
    # Small numbers are the interpreter's own, and counted once like all others.
    wanted = sum(map(sys.getsizeof, nested)) + sys.getsizeof(nested) + sum(map(sys.getsizeof, range(LISTS)))
    own, other = [], []
    for _ in range(repeats):
        gc.collect()
        begin = time.thread_time()
        size = Snapshot().measure(nested)
        own.append(time.thread_time() - begin)
        expect((size.bytes, size.exact), (wanted, True), "bytes of nested lists")
        if importable("guppy"):
            other.append(guppys(nested, wanted))
    values = {"memory_lists": statistics.median(own)}
    if other:
        values["memory_lists_ratio"] = statistics.median(mine / its for mine, its in zip(own, other, strict=True))
    return values


def guppys(nested: Any, wanted: int) -> float:
    """Return the seconds that guppy takes for the same, without the walk over the whole heap that it begins with."""
    heap = importlib.import_module("guppy").hpy()
    found = heap.iso(nested)
    heap.heap()  # what it needs to know of all other objects
    begin = time.thread_time()
    expect(abs(found.domisize - wanted) < LISTS * 32, True, "guppy counts about the same")
    return time.thread_time() - begin


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {"memory": memory}
