"""Ranks, IDEs and routers come and go; whoever is left goes on."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from meshrt import MeshError, proc_mesh
from tests.dap import debugged
from tests.dap.client import RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.debug.harness import person
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
STEP = marked_line(SOURCE, "step")


def children(ide: Ide, *names: str) -> None:
    """Wait until there are sessions of these ranks, and of no others."""
    wanted = {"meshrt", *names}
    ide.wait_for(lambda: set(ide.sessions) == wanted, f"the sessions {sorted(wanted)}")


def held(trainer: Any) -> list[tuple[int, int]]:
    """How many threads and descriptors each rank has."""
    return [facts[1:] for facts in trainer.facts.call().get(WAIT).values()]


@pytest.mark.slow
def test_ranks_come_and_go() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged, max_restarts=1)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        ide.set_breakpoints(SOURCE, [STEP])
        children(ide, "gpus=0 (rank 0)", "gpus=1 (rank 1)")

        # One that is killed while it stands: its session ends, the other one stands on; it comes back as a new one.
        pid = trainer.facts.call().get(WAIT).item(gpus=1)[0]
        call = trainer.step.call(1)
        ide.stopped(2)
        first = ide.sessions["gpus=1 (rank 1)"]
        os.kill(pid, signal.SIGKILL)
        first.wait_over()
        assert "the rank was killed" in first.client.output, first.client.output
        with pytest.raises(MeshError):
            call.get(WAIT)
        children(ide, "gpus=0 (rank 0)", "gpus=1 (rank 1)")
        again = ide.sessions["gpus=1 (rank 1)"]
        assert again is not first and again.breakpoints[SOURCE][0]["verified"]
        assert [session.name for session in ide.stopped()] == ["gpus=0 (rank 0)"]
        ide.continue_all()
        call = trainer.step.call(1)
        ide.stopped(2)
        ide.continue_all()
        call.get(WAIT)

        # A mesh that is born meanwhile, and stopped while it stands: nobody waits for a person.
        late = proc_mesh(n=1, name="late")
        other = late.spawn("other", Debugged)
        ide.wait_for(lambda: len(ide.sessions) == 4, "a session of the late rank")
        call = other.step.call(1)
        (standing,) = ide.stopped(1)
        assert "late" in standing.name
        late.stop(WAIT).get(WAIT)
        assert call.get(WAIT).item(n=0) == 1  # what stood went on
        standing.wait_over()
        assert not ide.problems


@pytest.mark.slow
def test_ranks_get_the_actor_that_they_are_meant_by() -> None:
    early = proc_mesh(n=1, name="early").spawn("trainer", Debugged)
    late = proc_mesh(n=2, name="late")
    late.spawn("other", Debugged).initialized.get(WAIT)
    early.initialized.get(WAIT)
    with router() as served, served.ide(meshName="trainer") as ide:
        ide.set_breakpoints(SOURCE, [STEP])
        known = ["early n=0 (rank 0)"]
        children(ide, *known)
        # The first gets it as a further actor, on a thread of its own; the second in the midst of its first spawn.
        newborn = proc_mesh(n=1, name="newborn")
        for mesh, count in ((late, 2), (newborn, 1)):
            trainer = mesh.spawn("trainer", Debugged)
            known += [f"{mesh.name} n={rank} (rank {rank})" for rank in range(count)]
            children(ide, *known)
            call = trainer.step.call(1)
            assert [session.name for session in ide.stopped(count)] == known[-count:]
            ide.continue_all()
            assert set(call.get(WAIT).values()) == {1}
        # Each is announced once, whatever else it gets.
        newborn.spawn("another", Debugged).initialized.get(WAIT)
        assert not ide.problems


@pytest.mark.slow
@pytest.mark.row("D1")
def test_an_ide_is_lost() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    before = held(trainer)
    with router() as served:
        # Its machine is gone: what stands goes on.
        with served.ide() as ide:
            ide.children(2)
            call = trainer.stop_here.call()
            ide.stopped(2)
            ide.kill()
            assert sorted(call.get(WAIT).values()) == [0, 1]

        # ... or stays, for the one who comes back.
        with served.ide(meshOnLost="stay") as ide:
            ide.children(2)
            call = trainer.stop_here.call()
            ide.stopped(2)
        with person() as prompt:
            gone = ["in an IDE that has disconnected, until an IDE attaches"] * 2
            wait_until(lambda: [row["note"] for row in prompt.rows()] == gone, WAIT)
            assert "continue trainer ranks(0) resumes it without an IDE" in prompt("attach trainer 0")
            shown = prompt("interrupt trainer ranks(0)")
            assert "the rank is stopped in an IDE that has disconnected; continue resumes the rank" in shown
            told = prompt("continue trainer ranks(0)")
            assert told == "rank 0 of trainer: asked to resume (the rank was stopped in an IDE that has disconnected)\n"
            # It is nobody's: breakpoints of the prompt stop it, while the other one stands on.
            wait_until(lambda: "IDE" not in prompt(f"break trainer debugged.py:{STEP} ranks(0)"), WAIT)
            assert [row["note"] for row in prompt.rows()] == gone[:1]
            one = trainer.slice(gpus=0).step.call_one(1)
            prompt.wait("trainer", "ranks(0)")
            prompt("clear all")
            prompt("continue trainer ranks(0)")
            assert one.get(WAIT) == 1 and not call.done()
        # Another router lets them go when a person ends it.
        with router():
            pass
        assert sorted(call.get(WAIT).values()) == [0, 1]

        # Those that run are nobody's at once.
        with served.ide(meshOnLost="stay") as ide:
            ide.children(2)
        wait_until(lambda: not any(trainer.traced.call().get(WAIT).values()), WAIT, "nothing traced")
        with person() as prompt:
            wait_until(lambda: "IDE" not in prompt(f"break debugged.py:{STEP}"), WAIT)
            call = trainer.step.call(1)
            prompt.wait("trainer")
            prompt("clear all")
            prompt("continue trainer")
            assert set(call.get(WAIT).values()) == {1, 2}

        # The one who comes back has it as it was, but for breakpoints that nobody knows of any more.
        ide = served.ide(meshOnLost="stay")
        ide.set_breakpoints(SOURCE, [STEP])
        with ide:
            ide.children(2)
            call = trainer.stop_here.call()
            ide.stopped(2)
        with served.ide(meshOnLost="stay") as ide:
            ide.stopped(2)
            assert not call.done()
            assert sorted(ide.evaluate("here").values()) == ["0", "1"]
            ide.continue_all()
            assert sorted(call.get(WAIT).values()) == [0, 1]
            assert set(trainer.step.call(1).get(WAIT).values()) == {2, 3}

            # Another IDE gets none of them meanwhile, and is told who has them.
            with router() as second:
                theirs = f"ranks 0-1: another window is attached, through the IDE of process {served.process.pid}"
                with pytest.raises(RequestFailed, match=theirs), second.ide():
                    pass

            # A goodbye lets go what stands.
            call = trainer.stop_here.call()
            ide.stopped(2)
            ide.disconnect()
            assert sorted(call.get(WAIT).values()) == [0, 1]
        # It leaves no thread behind; what the first one has loaded, once and for all, is no part of what others leave.
        wait_until(lambda: [threads for threads, _ in held(trainer)] == [threads for threads, _ in before], WAIT)
        before = held(trainer)

        # The router dies while ranks stand.
        with served.ide() as ide:
            ide.children(2)
            call = trainer.stop_here.call()
            ide.stopped(2)
            served.process.kill()
            assert sorted(call.get(WAIT).values()) == [0, 1]
            served.process.wait()
    wait_until(lambda: held(trainer) == before, WAIT, "no descriptor and no thread left")
    wait_until(lambda: not any(trainer.traced.call().get(WAIT).values()), WAIT, "nothing traced")


def test_the_debugger_beside_an_ide() -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with person() as prompt, router() as served:
        # It stands at a prompt when the IDE comes: the IDE waits, and is told.
        call = trainer.stop_here.call_one()
        prompt.wait("trainer")
        ide = served.ide()
        root = ide.attach()
        try:
            ide.wait_for(lambda: len(ide.live) == 2, "a session that waits")
            rank = ide.live[1]
            ide.wait_for(lambda: "is stopped at a prompt of the debugger" in rank.output, "what the rank waits for")
            assert not rank.attached and root.attached
            prompt("cast trainer ranks(0) c")
            assert call.get(WAIT) == 0
            ide.children(1)

            # Now it is the IDE's: breakpoint() stops there, and the prompt says who has it.
            call = trainer.stop_here.call_one()
            ide.stopped(1)
            assert rank.variables()["here"] == "0"
            (row,) = prompt.rows()
            assert row["state"] == "stopped" and row["note"].startswith("in the IDE of process")
            print(prompt("interrupt trainer"))
            assert "IDE of process" in prompt.terminal.shown
            # The control thread answers while everything stands, and a deadline does not pass.
            shown = prompt("where")
            assert "stop_here" in shown and "pydevd" not in shown
            print(prompt("memory"))
            assert prompt.ok
            with ThreadPoolExecutor(1) as pool:
                answer = pool.submit(call.get, 2)
                over = time.monotonic() + 3
                wait_until(lambda: time.monotonic() > over)
                ide.continue_all()
                assert answer.result(WAIT) == 0
            ide.disconnect()
        finally:
            ide.kill()
        # It is the debugger's again.
        call = trainer.stop_here.call_one()
        prompt.wait("trainer")
        prompt("cast trainer ranks(0) c")
        assert call.get(WAIT) == 0
