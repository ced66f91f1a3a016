"""What one fresh process does with one contestant; each scenario yields the values of some rows.

A scenario is a coroutine ``(peer, settings) -> {row key: value}``. It runs in :mod:`bench.child`. Rows of
:mod:`bench.rows` name the scenario that yields them. Only ``cold`` and ``orphans`` are timed or counted
from outside, by :mod:`bench.runner`.
"""

import json
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from bench.peers.protocol import PAGE, Actors, Array, Peer, filled
from bench.processes import descendants, pss, running

__all__ = ["SCENARIOS", "Settings", "Values", "publish"]

MIB = 1 << 20
PIPELINE = 1000
STOP_LIMIT = 15.0

Values = dict[str, float]


class Settings(NamedTuple):
    """How much a scenario does, and into which file its values go."""

    ranks: int
    quick: bool
    result: str

    def repeats(self, full: int) -> int:
        """Return ``full`` repetitions, or a fifth of them in a quick run."""
        return max(full // 5, 2) if self.quick else full


async def cold(peer: Peer, settings: Settings) -> Values:
    """Start, one call of all, stop. The caller of the process measures it from exec to exit."""
    actors = await peer.start(settings.ranks)
    answers = await actors.call_all()
    await actors.stop()
    expect(answers, settings.ranks, "answers")
    return {}


async def calls(peer: Peer, settings: Settings) -> Values:
    """Latency and rate of calls without payload, to one actor and to all, after a warm-up."""
    actors = await ready(peer, settings.ranks)
    settle()
    to_one = await durations(actors.call_one, settings.repeats(2000), warm_up=200)
    to_all = await durations(actors.call_all, settings.repeats(500), warm_up=20)
    per_all = PIPELINE // settings.ranks
    one = await durations(lambda: actors.pipeline_one(PIPELINE), settings.repeats(10), warm_up=1)
    every = await durations(lambda: actors.pipeline_all(per_all), settings.repeats(10), warm_up=1)
    await actors.stop()
    return {
        "one_p50": percentile(to_one, 50),
        "one_p99": percentile(to_one, 99),
        "all_p50": percentile(to_all, 50),
        "all_p99": percentile(to_all, 99),
        "rate_one": PIPELINE / statistics.median(one),
        "rate_all": per_all * settings.ranks / statistics.median(every),
    }


async def payload(peer: Peer, settings: Settings) -> Values:
    """Median time of a call that carries an array; the receiver reads one byte of each page.

    The array differs from call to call and the receiver's sum is compared, so nothing can be cached.
    """
    actors = await ready(peer, settings.ranks)
    values: Values = {}
    for size, repeats in ((MIB, 30), (64 * MIB, 6)):
        array = filled(size)
        pages = size // PAGE
        count = settings.repeats(repeats)

        async def put_one(array: Array = array, pages: int = pages) -> None:
            array[0] = (array[0] + 1) % 100
            expect(await actors.put_one(array), pages - 1 + int(array[0]), "sum over the pages")

        async def put_all(array: Array = array, pages: int = pages) -> None:
            array[0] = (array[0] + 1) % 100
            sums = await actors.put_all(array)
            expect(sums, [pages - 1 + int(array[0])] * settings.ranks, "sums over the pages")

        async def get_one(size: int = size, pages: int = pages) -> None:
            answer = await actors.get_one(size)
            expect(int(answer[::PAGE].sum()), pages, "sum over the pages")

        async def back_one(array: Array = array, pages: int = pages) -> None:
            array[0] = (array[0] + 1) % 100
            answer = await actors.back_one(array)
            expect(int(answer[::PAGE].sum()), pages - 1 + int(array[0]), "sum over the pages")

        name = f"{size // MIB}m"
        values[f"put_one_{name}"] = statistics.median(await durations(put_one, count, warm_up=2))
        values[f"put_all_{name}"] = statistics.median(await durations(put_all, count, warm_up=2))
        values[f"get_one_{name}"] = statistics.median(await durations(get_one, count, warm_up=2))
        values[f"back_one_{name}"] = statistics.median(await durations(back_one, count, warm_up=2))
    await actors.stop()
    return values


async def idle(peer: Peer, settings: Settings) -> Values:
    """Memory of idle actors after one call, and the time from ``stop()`` until no process is left."""
    actors = await ready(peer, settings.ranks)
    ranks = await actors.pids()
    settle()
    started = descendants(os.getpid())
    values = {
        "pss_rank": statistics.median(pss(pid) for pid in ranks),
        "pss_total": sum(pss(pid) for pid in [os.getpid(), *started]),
    }
    begin = time.perf_counter()
    await actors.stop()
    wait_until_gone(started)
    values["stop"] = time.perf_counter() - begin
    return values


def settle() -> None:
    """Let what the start or a call has left to do in the background come to its end."""
    time.sleep(0.5)


def wait_until_gone(pids: list[int]) -> None:
    """Wait until no process runs any more, but no longer than ``STOP_LIMIT``."""
    deadline = time.monotonic() + STOP_LIMIT
    while any(running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.001)


async def orphans(peer: Peer, settings: Settings) -> Values:
    """Start, answer once, say so, and wait for the SIGKILL; :mod:`bench.runner` counts what is left."""
    await ready(peer, settings.ranks)
    publish({}, settings.result)
    threading.Event().wait()
    return {}


async def death(peer: Peer, settings: Settings) -> Values:
    """SIGKILL actor 1 inside a call; time from the signal to the error at the caller."""
    actors = await ready(peer, settings.ranks)
    victim = 1
    pid = (await actors.pids())[victim]
    killed_at: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        started = f"{folder}/started"
        killer = threading.Thread(target=kill_inside_call, args=(pid, started, killed_at), daemon=True)
        killer.start()
        try:
            await actors.block(victim, started)
        except Exception:  # each contestant has its own error for this
            failed_at = time.perf_counter()
        else:
            raise RuntimeError("the call to the killed actor returned without an error")
        if not killed_at:
            raise RuntimeError("the call failed before the actor was killed")
    await actors.stop()
    return {"death": failed_at - killed_at[0]}


def kill_inside_call(pid: int, started: str, killed_at: list[float]) -> None:
    """Wait until the endpoint has said that it runs, let its caller settle, and kill its process."""
    while not os.path.exists(started):
        time.sleep(0.001)
    time.sleep(0.1)
    killed_at.append(time.perf_counter())
    os.kill(pid, signal.SIGKILL)


def publish(values: Values, result: str) -> None:
    """Write the values as JSON into the file ``result``, which appears complete or not at all."""
    unfinished = f"{result}.part"
    with open(unfinished, "w") as file:
        json.dump(values, file)
    os.replace(unfinished, result)


async def ready(peer: Peer, count: int) -> Actors:
    """Start ``count`` actors and wait until each has answered a call."""
    actors = await peer.start(count)
    expect(await actors.call_all(), count, "answers")
    return actors


async def durations(call: Callable[[], Awaitable[object]], count: int, *, warm_up: int) -> list[float]:
    """Return the seconds that each of ``count`` calls took, one after the other."""
    for _ in range(warm_up):
        await call()
    clock = time.perf_counter
    taken: list[float] = []
    for _ in range(count):
        begin = clock()
        await call()
        taken.append(clock() - begin)
    return taken


def percentile(values: list[float], percent: int) -> float:
    """Return the smallest value that is at least as large as ``percent`` per cent of them."""
    return sorted(values)[max(-(-len(values) * percent // 100) - 1, 0)]


def expect(found: object, wanted: object, what: str) -> None:
    """Stop the run where a contestant did not do the work."""
    if found != wanted:
        raise RuntimeError(f"{what}: expected {wanted}, got {found}")


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {
    "cold": cold,
    "calls": calls,
    "payload": payload,
    "idle": idle,
    "orphans": orphans,
    "death": death,
}
