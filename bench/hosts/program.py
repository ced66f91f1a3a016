"""The script: ``python -m bench.hosts.program WHAT RANKS QUICK`` prints its values as JSON."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.hosts.floor import far_end
from bench.peers.meshrt import Echo
from bench.peers.protocol import PAGE, filled
from bench.scenarios import Values, expect
from meshrt import ActorMesh, CommandEngine, MeshError, proc_mesh

__all__: list[str] = []

AGENTS: dict[str, list[str]] = json.loads(os.environ["BENCH_AGENTS"])
SIZE = 64 << 20


def start(ranks: int) -> ActorMesh[Echo]:
    """Start the ranks on the hosts."""
    engine = CommandEngine(tuple(AGENTS), tuple(map(tuple, AGENTS.values())))
    return proc_mesh(hosts=len(AGENTS), gpus=ranks // len(AGENTS), engine=engine).spawn("echo", Echo)


def alternating(count: int, *functions: Callable[[], object]) -> list[float]:
    """Return the median seconds of each function; they take turns."""
    taken: list[list[float]] = [[] for _ in functions]
    for _ in range(count):
        for function, seconds in zip(functions, taken, strict=True):
            begin = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - begin)
    return [statistics.median(each) for each in taken]


def calls(ranks: int, quick: bool) -> Values:
    """Start; calls of one rank and of all, beside the same on this machine and a round trip without a runtime."""
    begin = time.perf_counter()
    far = start(ranks)
    far.ping.call().get()
    values = {"hosts_start": time.perf_counter() - begin}
    near = proc_mesh(gpus=ranks).spawn("echo", Echo)
    near.ping.call().get()
    far_one, near_one = far.slice(hosts=0, gpus=0), near.slice(gpus=0)
    with far_end(next(iter(AGENTS.values())), os.environ["BENCH_FLOOR"]) as floor:
        count = 300 if quick else 2000
        alternating(count // 10, far_one.ping.call_one().get, near_one.ping.call_one().get, floor.round_trip)
        one, local, bare = alternating(
            count,
            lambda: far_one.ping.call_one().get(),
            lambda: near_one.ping.call_one().get(),
            floor.round_trip,
        )
    every, local_all = alternating(count // 4, lambda: far.ping.call().get(), lambda: near.ping.call().get())
    return {
        **values,
        "hosts_one": one,
        "hosts_one_unix": one / local,
        "hosts_one_tls": one / bare,
        "hosts_all": every,
        "hosts_all_unix": every / local_all,
    }


def sent() -> int:
    """Return the bytes that this machine has sent by its interface."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("eth0"))


def arrays(ranks: int, quick: bool) -> Values:
    """One array to all ranks, beside its transfer to one machine without a runtime."""
    far = start(ranks)
    array = filled(SIZE)

    def put() -> None:
        array[0] = (array[0] + 1) % 100
        sums = far.put.call(array).get().values()
        expect(list(sums), [SIZE // PAGE - 1 + int(array[0])] * ranks, "sums over the pages")

    put()
    before, count = sent(), 2 if quick else 5
    with far_end(next(iter(AGENTS.values())), os.environ["BENCH_FLOOR"]) as floor:
        taken, bare = alternating(count, put, lambda: floor.transfer(SIZE))
    total = (sent() - before) / count - SIZE  # without the transfer
    return {"hosts_array": taken, "hosts_array_ratio": taken / bare, "hosts_sent": total / SIZE}


def loss(ranks: int, quick: bool) -> Values:
    """A call waits for ranks that are lost. Returns the time of its error, by the monotonic clock."""
    far = start(ranks)
    far.ping.call().get()
    call = far.block.call("/dev/null")
    print("waits", flush=True)
    try:
        call.get()
    except MeshError as error:
        expect("HostLost", type(error).__name__, "the error")
    return {"hosts_lost": time.monotonic()}


def main() -> None:
    """Measure one thing."""
    what, ranks, quick = sys.argv[1:]
    print(json.dumps({"calls": calls, "arrays": arrays, "loss": loss}[what](int(ranks), quick == "1")), flush=True)


if __name__ == "__main__":
    main()
