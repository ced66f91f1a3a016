"""A rank in C code that holds its GIL answers nothing: the others are attached to, stop and go on meanwhile."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from meshrt import proc_mesh
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.debug.harness import person
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
STEP, AFTER = marked_line(SOURCE, "step"), marked_line(SOURCE, "after")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def held(rank: Any, fifo: Path, *, on: bool = False) -> Any:
    """Have one rank hold its GIL until a byte is written; returns its call once it does."""
    call = rank.hold.call_one(str(fifo), on=on)
    with person() as prompt:
        prompt.until("where", "hold_gil", "the GIL is held in C")
    return call


@pytest.mark.nightly
def test_ranks_as_threads(fifo: Path) -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    first, second = (trainer.slice(gpus=rank) for rank in range(2))
    holds = held(second, fifo)
    with router() as served, served.ide(meshView="threads") as ide:
        root = ide.root
        root.client.wait_event("output", lambda body: "gpus=1 (rank 1) does not answer (" in body["output"])
        one = next(each for each in root.threads() if each["name"] == "gpus=0 (rank 0)")
        other = root.client.wait_event("thread", lambda body: body["threadId"] != one["id"])["threadId"]
        ide.set_breakpoints(SOURCE, [STEP])
        (point,) = root.breakpoints[SOURCE]
        assert point["verified"] and "message" not in point
        assert root.threads() == [one, {"id": other, "name": "gpus=1 (rank 1) does not answer"}]
        call = first.step.call_one(1)
        assert root.client.wait_event("stopped")["hitBreakpointIds"] == [point["id"]]
        root.resume("continue", one["id"])
        call.get(WAIT)

        # It joins when it can, with what was set meanwhile, and is told of once more.
        fifo.write_bytes(b"x")
        holds.get(WAIT)
        root.client.wait_event("thread", lambda body: body["threadId"] == other)
        assert {"id": other, "name": "gpus=1 (rank 1)"} in root.threads()
        call = second.step.call_one(1)
        stop = root.client.wait_event("stopped")
        assert (stop["threadId"], stop["hitBreakpointIds"]) == (other, [point["id"]])
        root.resume("continue", other)
        call.get(WAIT)

        # Attached, it keeps nobody waiting either: what it is asked it does when it can.
        holds = held(second, fifo, on=True)
        ide.set_breakpoints(SOURCE, [AFTER])
        (point,) = root.breakpoints[SOURCE]
        assert point["verified"] and point["message"] == "no answer yet from rank 1"
        call = first.step.call_one(1)
        assert root.client.wait_event("stopped")["hitBreakpointIds"] == [point["id"]]
        root.pause(other)
        root.client.wait_event("output", lambda body: "does not answer: the rank is in C code" in body["output"])
        root.resume("continue", one["id"])
        call.get(WAIT)
        fifo.write_bytes(b"x")
        changed = root.client.wait_event("breakpoint")["breakpoint"]
        assert changed["id"] == point["id"] and changed["verified"] and "message" not in changed
        assert root.client.wait_event("stopped")["reason"] == "pause"
        top = next(frame for frame in root.stack(other) if frame["name"].endswith("hold"))
        root.evaluate("self.go.set()", frame=top["id"])
        root.resume("continue", other)
        holds.get(WAIT)
        call = second.step.call_one(1)
        assert root.client.wait_event("stopped")["hitBreakpointIds"] == [point["id"]]
        root.resume("continue", other)
        call.get(WAIT)
        started = [event.body["threadId"] for event in root.client.events if event.name == "thread"]
        assert started.count(other) == 2
        ide.disconnect()


@pytest.mark.slow
def test_a_session_for_each_rank(fifo: Path) -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    first, second = (trainer.slice(gpus=rank) for rank in range(2))
    holds = held(second, fifo)
    with ThreadPoolExecutor(1) as pool, router() as served, served.ide() as ide:
        ide.set_breakpoints(SOURCE, [STEP])
        (one,) = ide.children(1)
        assert one.breakpoints[SOURCE][0]["verified"]
        call = first.step.call_one(1)
        assert ide.stopped(1) == [one]
        ide.continue_all()
        call.get(WAIT)
        silent = "gpus=1 (rank 1) does not answer"
        ide.wait_for(lambda: any(silent in each.output for each in ide.live), silent)
        fifo.write_bytes(b"x")
        holds.get(WAIT)
        (other,) = set(ide.children(2)) - {one}
        call = second.step.call_one(1)
        assert ide.stopped(1) == [other]
        ide.continue_all()
        call.get(WAIT)

        # What is asked of it is answered, and done, when it can; the session of the other one hears nothing of that.
        holds = held(second, fifo, on=True)
        changing = pool.submit(ide.set_breakpoints, SOURCE, [AFTER])
        paused = other.client.begin("pause", threadId=1)
        ide.wait_for(lambda: one.breakpoints[SOURCE][0]["line"] == AFTER, "the breakpoint in the other rank")
        call = first.step.call_one(1)
        assert ide.stopped(1) == [one]
        ide.continue_all()
        call.get(WAIT)
        assert not (paused.done() or changing.done())
        fifo.write_bytes(b"x")
        assert ide.stopped(1) == [other]
        changing.result(WAIT)
        top = next(frame for frame in other.stack() if frame["name"].endswith("hold"))
        other.evaluate("self.go.set()", frame=top["id"])
        ide.continue_all()
        holds.get(WAIT)
        call = second.step.call_one(1)
        assert ide.stopped(1) == [other]
        ide.continue_all()
        call.get(WAIT)
