"""The program's side: actors that stop, and beside them the process of a person who measures.

As in a user's script, the main thread waits for the call that has stopped. Where the person fails, the program ends,
and the run with it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.debugger.protocol import Peer
from bench.processes import available_memory
from bench.scenarios import Settings, Values, durations, expect

__all__ = ["SCENARIOS"]

LARGE_GIB = 15
"""Memory that has to be free for the large mesh: all its ranks load the debugger."""


async def debugger(peer: Peer, settings: Settings) -> Values:
    """Play every act that the contestant knows, and measure what needs no actors when they have ended."""
    program = await peer.start(settings.ranks)
    expect(await program.ping(), settings.ranks, "answers")
    values: Values = {}
    for act in peer.acts:
        person = Person(peer, act, program.address, settings)
        await program.play(act, person.sockets)
        values |= person.measured()
    await program.stop()
    for act in peer.alone:
        values |= Person(peer, act, program.address, settings).measured()
    return values


async def large(peer: Peer, settings: Settings) -> Values:
    """The few things that have to work on a mesh as large as one machine can hold."""
    if (available := available_memory()) < LARGE_GIB:
        raise RuntimeError(f"{LARGE_GIB} GiB of memory are needed, {available:.1f} GiB are available")
    begin = time.perf_counter()
    program = await peer.start(settings.ranks)
    expect(await program.ping(), settings.ranks, "answers")
    values = {"large_spawn": time.perf_counter() - begin}
    values["large_call"] = statistics.median(await durations(program.ping, settings.repeats(20), warm_up=1))
    person = Person(peer, "large", program.address, settings)
    await program.play("large", person.sockets)
    values |= person.measured()
    await program.stop()
    return values


class Person:
    """The process that looks on while an act is played, and measures."""

    def __init__(self, peer: Peer, act: str, address: str, settings: Settings) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="act-")
        self._result = Path(self._folder.name, "result")
        self.sockets = tempfile.mkdtemp(dir=self._folder.name)
        told = [peer.name, act, address, str(settings.ranks), str(int(settings.quick)), self.sockets, str(self._result)]
        process = subprocess.Popen([sys.executable, "-m", "bench.debugger.person", *told])
        self._watcher = threading.Thread(target=end_with, args=(process,), daemon=True)
        self._watcher.start()

    def measured(self) -> Values:
        """Wait until the person is done and return the values."""
        self._watcher.join()
        values: Values = json.loads(self._result.read_text())
        self._folder.cleanup()
        return values


def end_with(person: subprocess.Popen[bytes]) -> None:
    """Wait for the person's end. Ranks that nobody lets go on would keep this process for ever."""
    if person.wait() != 0:
        print(f"the person has failed, exit status {person.returncode}", file=sys.stderr, flush=True)
        os._exit(1)


SCENARIOS: dict[str, Callable[[Peer, Settings], Coroutine[Any, Any, Values]]] = {
    "debugger": debugger,
    "large": large,
}
