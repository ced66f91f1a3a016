"""The IDE's side: it attaches, stops at a breakpoint, goes on, pauses, and leaves. And what that leaves behind."""

import os
import statistics
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.dap.peers.meshrt import Debuggee, Router
from bench.debugger import probe as probing
from bench.debugger.person.cost import CALLS, TURNS_OF_THE_LOOP, Probe, probe, ratio
from bench.peers.protocol import Peer
from bench.scenarios import Settings, Values, expect
from tests.dap.ide import Ide
from tests.dap.session import Session
from tests.support.markers import marked_line

__all__ = ["SCENARIOS"]

PROGRAM = Path(__file__).with_name("program.py")
PROBE = probing.__file__
BREAKPOINT = marked_line(str(PROGRAM), "here")
SLOW = 120.0
"""Seconds after which a run has failed: 64 ranks import an engine on two cores."""


async def dap(peer: Peer, settings: Settings) -> Values:
    """Attach to fresh programs; then, in one of them, what a person does."""
    values = {"dap_attach": statistics.median(fresh(settings, "sessions"))}
    program: Any = await peer.start(settings.ranks)
    values["dap_again"] = again(program, settings)
    ide, _ = attached(program, settings.ranks, "sessions")
    values |= stops(program, ide, settings)
    values["dap_pause"] = pauses(program, ide, settings)
    ide.disconnect()
    ide.kill()
    program.stop()
    return values


async def dap_many(peer: Peer, settings: Settings) -> Values:
    """Attach to many ranks: a session for each, or one in which they are threads."""
    return {f"dap_many_{view}": statistics.median(fresh(settings, view, times=3)) for view in ("sessions", "threads")}


def fresh(settings: Settings, view: str, *, times: int = 5) -> list[float]:
    """Return the seconds that attaching takes, each time to a new program."""
    taken = []
    for _ in range(settings.repeats(times)):
        program = Debuggee(settings.ranks)
        ide, seconds = attached(program, settings.ranks, view)
        ide.kill()
        program.stop()
        taken.append(seconds)
    return taken


def attached(program: Debuggee, ranks: int, view: str) -> tuple[Ide, float]:
    """Attach; return the IDE and the seconds from its first byte until every rank has its breakpoint."""
    ide = Ide(program.at, {**program.configuration, "meshView": view})
    ide.set_breakpoints(PROGRAM, [BREAKPOINT])
    begin = time.perf_counter()
    try:
        ide.attach()
        sessions = [ide.root] if view == "threads" else ide.children(ranks, SLOW)
        ide.wait_for(lambda: all(map(is_set, sessions)), "breakpoints that are set in all ranks", SLOW)
    except BaseException:
        ide.kill()
        raise
    return ide, time.perf_counter() - begin


def is_set(session: Session) -> bool:
    """Say whether the breakpoint is one, and where it was asked for."""
    return [(each["verified"], each["line"]) for each in session.breakpoints[str(PROGRAM)]] == [(True, BREAKPOINT)]


def again(program: Debuggee, settings: Settings) -> float:
    """Return the seconds that attaching takes to ranks which an IDE has left."""
    taken = []
    for _ in range(settings.repeats(5) + 1):
        ide, seconds = attached(program, settings.ranks, "sessions")
        ide.disconnect()
        ide.kill()
        taken.append(seconds)
    return statistics.median(taken[1:])


def stops(program: Debuggee, ide: Ide, settings: Settings) -> Values:
    """Hit the breakpoint in all ranks, and let one after the other go on."""
    hit, go_on = [], []
    for _ in range(settings.repeats(10)):
        begin = time.perf_counter()
        program.tell("step")
        standing = ide.stopped(settings.ranks)
        hit.append(time.perf_counter() - begin)
        for session in standing:
            begin = time.perf_counter()
            session.resume()
            go_on.append(time.perf_counter() - begin)
        program.wait()
    return {
        "dap_hit": statistics.median(hit),
        "dap_continue": statistics.median(go_on),
        "dap_continue_worst": max(go_on),
    }


def pauses(program: Debuggee, ide: Ide, settings: Settings) -> float:
    """Return the seconds from a pause of a rank that blocks until it stands, and let it go on each time.

    The program is in that call for good.
    """
    session = ide.sessions[min(each.name for each in ide.live if each is not ide.root)]
    thread = int(session.threads()[0]["id"])
    program.tell("sleep")
    # In the call, not on the way to it: a rank that blocks is to be paused.
    deadline = time.monotonic() + SLOW
    while not any(each["name"].endswith("sleep") for each in session.stack(thread)):
        expect(time.monotonic() < deadline, True, "a rank that sleeps in time")
    taken = []
    for _ in range(settings.repeats(10)):
        begin = time.perf_counter()
        session.pause(thread)
        standing = ide.stopped()
        taken.append(time.perf_counter() - begin)
        expect([each.name for each in standing], [session.name], "who stands")
        session.resume()
    return statistics.median(taken)


async def dap_cost(_peer: Peer, settings: Settings) -> Values:
    """What the program pays: with a router and no IDE, with an IDE, and after it. Everything shares one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    calls, noise = [], []
    for _ in range(settings.repeats(5)):
        with probe() as plain, probe() as same, probe(0) as listening:
            turns = settings.repeats(20)
            calls.append(ratio(plain, listening, "call", "call", CALLS, turns))
            noise.append(ratio(plain, same, "call", "call", CALLS, turns))
    return {"dap_call": statistics.median(calls), "dap_noise": max(noise), **loops(settings)}


def loops(settings: Settings) -> Values:
    """Return how fast a small function is called while an IDE is attached, and after it, to the time before.

    Before it leaves it has a breakpoint in that function, on a condition that is never met.
    What is found without an IDE, measured twice, differs too: each is the median of some pairs of programs.
    """
    turns = settings.repeats(10)
    found: dict[str, list[float]] = {"dap_loop": [], "dap_loop_after": [], "dap_loop_noise": []}

    def speed(plain: Probe, other: Probe) -> float:
        return 1 / ratio(plain, other, "loop", "loop", TURNS_OF_THE_LOOP, turns)

    for _ in range(settings.repeats(5)):
        with probe() as plain, probe() as other:
            speed(plain, other)  # what a program is like at first, it never is again
            first, before = speed(plain, other), speed(plain, other)
            router = Router(other.pid)
            with Ide(router.at, router.configuration) as ide:
                (session,) = ide.children(1)
                during = speed(plain, other)
                answers = ide.set_breakpoints(PROBE, [marked_line(PROBE, "turn")], condition="value < 0")
                expect([each["verified"] for each in answers[session.name]], [True], "the breakpoint of the loop")
                other.tell("loop", 100)
                other.answer()
                session.client.request("disconnect")
                session.wait_over()  # the router hangs up when the engine has ended
            after = speed(plain, other)
            router.end()
        found["dap_loop"].append(during / before)
        found["dap_loop_after"].append(after / before)
        found["dap_loop_noise"].append(before / first)
    return {name: statistics.median(values) for name, values in found.items()}


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {
    "dap": dap,
    "dap_many": dap_many,
    "dap_cost": dap_cost,
}
