"""What an IDE asks of a rank now and then: other lines to go on at, what to step into, modules; and what is refused."""

from __future__ import annotations

import os

import pytest

from meshrt import proc_mesh
from tests.dap import debugged
from tests.dap.client import RequestFailed
from tests.dap.debugged import AsyncDebugged, Debugged
from tests.dap.router import router
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__


def line(name: str) -> int:
    return marked_line(SOURCE, name)


def test_one_rank() -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        (rank,) = ide.children(1)
        ask = rank.client.request
        ide.set_breakpoints(SOURCE, [line("step")])
        source = {"name": os.path.basename(SOURCE), "path": SOURCE}

        # Go on at another line: what is in between is left out.
        call = trainer.step.call_one(3)
        ide.stopped()
        targets = ask("gotoTargets", source=source, line=line("after"))["targets"]
        assert [each["line"] for each in targets] == [line("after")]
        ask("goto", threadId=1, targetId=targets[0]["id"])
        rank.client.wait_event("stopped", lambda body: body["reason"] == "goto")
        assert rank.stack()[0]["line"] == line("after")
        rank.resume()
        assert call.get(WAIT) == 0

        # Step into one of the functions that a line calls.
        call = trainer.step.call_one(3)
        ide.stopped()
        offered = ask("stepInTargets", frameId=rank.stack()[0]["id"])["targets"]
        (add,) = (each["id"] for each in offered if each["label"].startswith("add"))
        ask("stepIn", threadId=1, targetId=add)
        rank.client.wait_event("stopped", lambda body: body["reason"] == "step")
        assert rank.stack()[0]["line"] == line("add")

        # What is shown in passing floods nothing; a line that is no Python is told in few lines.
        rank.evaluate("many = dict.fromkeys(range(100_000))")
        for context in ("repl", "hover", "watch"):
            shown = rank.evaluate("many", context)
            assert shown.endswith("(dict of 100000)") and len(shown) < 2000, shown
            assert rank.evaluate("'x' * 70_000", context).endswith("...  (str of 70000)")
        assert rank.evaluate("'x' * 70_000", "clipboard") == repr("x" * 70_000)
        with pytest.raises(RequestFailed, match=r"SyntaxError") as caught:
            rank.evaluate("this is no Python")
        assert "pydevd" not in caught.value.message, caught.value.message
        with pytest.raises(RequestFailed, match="SystemExit"):
            rank.evaluate("exit()")
        assert {each["name"] for each in ask("modules")["modules"]} >= {"tests.dap.debugged"}

        # What makes no sense is refused, and ends nothing.
        with pytest.raises(RequestFailed, match="each session needs its own connection"):
            ask("attach", **rank.configuration)
        with pytest.raises(RequestFailed, match="setBreakpoints: the arguments are not valid for debugpy's engine"):
            ask("setBreakpoints", source={"path": 5}, breakpoints=[{"line": 1}])
        with pytest.raises(RequestFailed, match="readMemory"):
            ask("readMemory", memoryReference="1", count=5)
        rank.resume()
        assert call.get(WAIT) == 3
        with pytest.raises(RequestFailed, match=r'pathMappings is a list of \{"localRoot": '):
            served.ide(pathMappings=["/app"]).attach()


def test_a_pause_while_an_endpoint_awaits() -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", AsyncDebugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        (rank,) = ide.children(1)
        call = trainer.sleep.call_one()
        wait_until(lambda: trainer.sleeps.call_one().get(WAIT), WAIT)
        rank.pause(1)
        rank.client.wait_event(
            "output", lambda body: "sleep() of trainer is in C code or in an await" in body["output"]
        )
        assert rank.stop is None
        # The loop is not kept from its work; the first line of Python that runs on it is where the rank stands.
        woken = trainer.wake.call_one()
        ide.stopped()
        assert rank.stack()[0]["line"] == line("wake")
        rank.resume()
        woken.get(WAIT)
        assert call.get(WAIT) == 0
