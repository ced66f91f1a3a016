"""The script: ``python -m bench.hosts.program WHAT RANKS QUICK`` prints its values as JSON."""

from __future__ import annotations

import time

from bench.hosts.engines import AGENTS, FLOOR, Watched, commands
from bench.hosts.floor import far_end
from bench.hosts.measuring import in_blocks, measure_arrays, play
from bench.peers.meshrt import Echo
from bench.peers.protocol import Array
from bench.scenarios import Values
from meshrt import ActorMesh, RayEngine, proc_mesh
from meshrt.mesh.engine import Engine

__all__: list[str] = []


def start(ranks: int, engine: Engine) -> ActorMesh[Echo]:
    """Start the ranks on the hosts."""
    return proc_mesh(hosts=len(AGENTS), gpus=ranks // len(AGENTS), engine=engine).spawn("echo", Echo)


def calls(ranks: int, quick: bool) -> Values:
    """Start; calls of one rank and of all, beside the same on this machine and a round trip without a runtime."""
    engine = Watched(commands())
    begin = time.perf_counter()
    far = start(ranks, engine)
    far.ping.call().get()
    end = time.perf_counter()
    near = proc_mesh(gpus=ranks).spawn("echo", Echo)
    near.ping.call().get()
    far_one, near_one = far.slice(hosts=0, gpus=0), near.slice(gpus=0)
    with far_end(FLOOR[1:], FLOOR[0]) as floor:

        def measure(count: int) -> list[float]:
            return in_blocks(
                count,
                lambda: far_one.ping.call_one().get(),
                lambda: near_one.ping.call_one().get(),
                floor.round_trip,
            )

        count = 500 if quick else 2000
        measure(count // 5)
        one, local, bare = measure(count)
    every, local_all = in_blocks(count // 4, lambda: far.ping.call().get(), lambda: near.ping.call().get())
    return {
        "hosts_start": end - begin,
        "hosts_start_behind": end - engine.placed_at,
        "hosts_one": one,
        "hosts_one_unix": one / local,
        "hosts_one_tls": one / bare,
        "hosts_all": every,
        "hosts_all_unix": every / local_all,
    }


def arrays(ranks: int, quick: bool) -> Values:
    """One array to all ranks, beside its transfer to one machine without a runtime."""
    far = start(ranks, commands())

    def put_all(array: Array) -> list[int]:
        return list(far.put.call(array).get().values())

    with far_end(FLOOR[1:], FLOOR[0]) as floor:
        return measure_arrays(put_all, ranks, quick, floor.transfer)


def ray(ranks: int, quick: bool) -> Values:
    """Start on the nodes of a Ray cluster, to the answer of all."""
    engine = Watched(RayEngine())
    begin = time.perf_counter()
    start(ranks, engine).ping.call().get()
    end = time.perf_counter()
    return {"hosts_ray_start": end - begin, "hosts_ray_behind": end - engine.placed_at}


if __name__ == "__main__":
    play({"calls": calls, "arrays": arrays, "ray": ray})
