"""A worker of Monarch, ``python -m bench.hosts.monarch_program worker ADDRESS``, and the client of all of them.

``... WHAT RANKS QUICK`` measures with the workers in ``BENCH_WORKERS``, and prints its values as JSON.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from monarch.actor import attach_to_workers, enable_transport, run_worker_loop_forever

from bench.hosts.measuring import in_blocks, measure_arrays, play
from bench.peers.monarch import Echo
from bench.peers.protocol import Array
from bench.scenarios import Values, expect

__all__: list[str] = []

TRUST: Any = "trust_all_connections"


def start(ranks: int) -> tuple[Any, Any]:
    """Start as many processes on each host. Returns their actors when each has answered, and the hosts."""
    workers = os.environ["BENCH_WORKERS"].split()
    hosts: Any = attach_to_workers(ca=TRUST, workers=workers)
    hosts.initialized.get()
    actors: Any = hosts.spawn_procs(per_host={"gpus": ranks // len(workers)}).spawn("echo", Echo)
    expect(len(actors.pid.call().get().values()), ranks, "answers")
    return actors, hosts


def calls(ranks: int, quick: bool) -> Values:
    """Start; calls of one actor and of all."""
    begin = time.perf_counter()
    actors, hosts = start(ranks)
    values = {"hosts_start": time.perf_counter() - begin}
    one = actors.slice(hosts=0, gpus=0)
    count = 500 if quick else 2000
    in_blocks(count // 5, lambda: one.ping.call_one().get())
    (single,) = in_blocks(count, lambda: one.ping.call_one().get())
    (every,) = in_blocks(count // 4, lambda: actors.ping.call().get())
    hosts.stop().get()
    return {**values, "hosts_one": single, "hosts_all": every}


def arrays(ranks: int, quick: bool) -> Values:
    """One array to all actors."""
    actors, hosts = start(ranks)
    values = measure_arrays(lambda array: put_all(actors, array), ranks, quick)
    hosts.stop().get()
    return values


def put_all(actors: Any, array: Array) -> list[int]:
    """Send an array to all actors; returns their sums."""
    return list(actors.put.call(array).get().values())


if __name__ == "__main__":
    enable_transport("tcp")
    if sys.argv[1] == "worker":
        run_worker_loop_forever(ca=TRUST, address=sys.argv[2])
    play({"calls": calls, "arrays": arrays})
