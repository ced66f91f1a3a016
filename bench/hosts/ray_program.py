"""The driver of Ray: ``python -m bench.hosts.ray_program WHAT RANKS QUICK`` prints its values as JSON."""

from __future__ import annotations

import time
from typing import Any

import ray

from bench.hosts.measuring import in_blocks, measure_arrays, play
from bench.peers.protocol import Array
from bench.peers.ray import Echo
from bench.scenarios import Values, expect

__all__: list[str] = []


def start(ranks: int) -> list[Any]:
    """Start an actor a CPU, and so on all nodes that have some. Returns when each has answered."""
    actor: Any = ray.remote(Echo)
    actors: list[Any] = [actor.options(num_cpus=1).remote() for _ in range(ranks)]
    expect(len(ray.get([each.pid.remote() for each in actors])), ranks, "answers")
    return actors


def calls(ranks: int, quick: bool) -> Values:
    """Start; calls of one actor and of all."""
    ray.init(address="auto", log_to_driver=False)
    begin = time.perf_counter()
    actors = start(ranks)
    values = {"hosts_start": time.perf_counter() - begin}
    count = 500 if quick else 2000
    in_blocks(count // 5, lambda: ray.get(actors[0].ping.remote()))
    (one,) = in_blocks(count, lambda: ray.get(actors[0].ping.remote()))
    (every,) = in_blocks(count // 4, lambda: ray.get([actor.ping.remote() for actor in actors]))
    return {**values, "hosts_one": one, "hosts_all": every}


def arrays(ranks: int, quick: bool) -> Values:
    """One array to all actors."""
    ray.init(address="auto", log_to_driver=False)
    actors = start(ranks)

    def put_all(array: Array) -> list[int]:
        stored = ray.put(array)
        return list(ray.get([actor.put.remote(stored) for actor in actors]))

    return measure_arrays(put_all, ranks, quick)


if __name__ == "__main__":
    play({"calls": calls, "arrays": arrays})
