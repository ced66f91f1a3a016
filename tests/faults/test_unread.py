"""A process that is stopped reads nothing: those that tell it something keep a bounded part of it."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, endpoint
from meshrt.transport.dropping import WAIT_BYTES
from meshrt.transport.kernel import stat_fields
from meshrt.transport.process import current_runtime
from tests.faults.watch import LONG, Program, agents
from tests.support.footprint import resident_bytes
from tests.support.pausing import paused
from tests.support.waiting import wait_until

#: Exceptions of a rank, and characters of each: more than three times as much as may wait.
COUNT, LENGTH = 400, 30_000
#: Bytes that a process that must not keep them may grow by.
GROWTH = 16 << 20


def raise_in_threads(gate: str, note: str) -> None:
    """Runs in a rank."""
    while not os.path.exists(gate):
        time.sleep(0.01)
    for _ in range(COUNT):
        thread = threading.Thread(target=fail)
        thread.start()
        thread.join()
    Path(note).touch()


def fail() -> None:
    raise ValueError("x" * LENGTH)


class Asking(Actor):
    """Asks the root, and waits for no answer before the last."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def ask(self, gate: str, count: int, size: int) -> int:
        """Returns how many were answered."""
        while not os.path.exists(gate):
            time.sleep(0.01)
        tree: Any = current_runtime().tree
        answered: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(count):
            body = {"mesh": tree.mesh_id, "rank": tree.rank, "text": "x" * size}
            tree.control.requests.ask("mesh.born", body, lambda _answer, _why, number=number: answered.put(number))
        return sum(answered.get(timeout=3 * LONG) == number for number in range(count))


SCRIPT = """
    from tests.faults.test_unread import raise_in_threads
    gate, note, end = sys.argv[1:]
    victims = proc_mesh(n=2).spawn("victim", Victim).get(20)
    first = victims.slice(n=0)
    first.apply.broadcast(raise_in_threads, gate, note)
    tell(begun=victims.slice(n=1).pid.call_one().get(20))
    while not os.path.exists(end):
        time.sleep(0.01)
    tell(echo=first.echo.call_one(1).get(20))
"""


@pytest.mark.slow
@pytest.mark.row("C2")
def test_ranks_raise_while_the_root_is_stopped(tmp_path: Path) -> None:
    """Its agent keeps a part of that. What was left out is said when the root goes on; what it asks is answered."""
    gate, note, end = (tmp_path / name for name in ("gate", "note", "end"))
    with Program(SCRIPT, tmp_path, str(gate), str(note), str(end)) as program:
        program.told("begun")
        (agent,) = agents(program.pid)
        before = resident_bytes(agent)
        with paused(program.pid):
            gate.touch()
            wait_until(note.exists, 3 * LONG, "the rank has raised all of them")
            assert resident_bytes(agent) - before < GROWTH
        wait_until(
            lambda: "exceptions that no caller waits for on rank 0 of mesh1 were dropped" in program.output, LONG
        )
        end.touch()
        assert program.told("echo") == 1
        program.ends()


def is_settled(pid: int) -> bool:
    """Whether a process neither works nor grows."""
    before = resident_bytes(pid), stat_fields(pid)[11:13]
    time.sleep(0.3)  # nothing tells of what does not happen
    return before == (resident_bytes(pid), stat_fields(pid)[11:13])


ASKING = """
    from tests.faults.test_unread import Asking
    asking = proc_mesh(n=2).spawn("asking", Asking).get(20)
    pids = asking.pid.call().get(20).values()
    call = asking.slice(n=0).ask.call_one(sys.argv[1], 1000, 100_000)
    tell(pids=list(pids))
    tell(answered=call.get(60))
"""


@pytest.mark.row("C2")
def test_a_rank_asks_while_the_root_is_stopped(tmp_path: Path) -> None:
    """No request is lost: the rank waits as soon as too much waits for the root, and other ranks are well."""
    gate = tmp_path / "gate"
    with Program(ASKING, tmp_path, str(gate)) as program:
        asking, _ = program.told("pids")
        (agent,) = agents(program.pid)
        before = {pid: resident_bytes(pid) for pid in (agent, asking)}
        with paused(program.pid):
            gate.touch()
            # What the rank keeps itself is what the agent does not read any more.
            wait_until(lambda: resident_bytes(asking) - before[asking] > WAIT_BYTES // 2, 3 * LONG)
            wait_until(lambda: is_settled(agent), 3 * LONG)
            assert resident_bytes(agent) - before[agent] < WAIT_BYTES + GROWTH
        assert program.told("answered", 3 * LONG) == 1000
        assert "does not answer" not in program.output
        assert program.ends() == 0
