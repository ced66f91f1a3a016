"""What a session of one rank offers, one in which ranks are threads offers, too: all kinds of stops, and of ends."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest

from meshrt import ActorError, Future, MeshError, proc_mesh
from meshrt.hooks.facts import Body
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
#: What it costs is said before anything else.
SLOW = "Python 3.11 traces every call while an IDE is attached"


def line(name: str) -> int:
    return marked_line(SOURCE, name)


def stops(ide: Ide, count: int) -> list[Body]:
    """Wait for so many stops that nobody has seen yet."""
    return [ide.root.client.wait_event("stopped") for _ in range(count)]


def attached(ide: Ide) -> list[int]:
    """Return the numbers of the ranks, in their order."""
    found = {each["name"]: each["id"] for each in ide.root.threads()}
    assert list(found) == ["gpus=0 (rank 0)", "gpus=1 (rank 1)"]
    return list(found.values())


@pytest.mark.slow
def test_stops_of_all_kinds() -> None:
    trainer = proc_mesh(gpus=3).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    both = trainer.slice(gpus=slice(0, 2))
    with router() as served, served.ide(meshView="threads", meshStep="all", meshRanks="ranks(0:2)") as ide:
        root, ask = ide.root, ide.root.client.request
        first, second = ranks = attached(ide)
        assert (SLOW in root.output) is (sys.version_info < (3, 12))

        def lines() -> list[int]:
            return [root.stack(rank)[0]["line"] for rank in ranks]

        def functions() -> list[str]:
            return [root.stack(rank)[0]["name"] for rank in ranks]

        # A step is that of all that stand, wherever, or of one if that is asked for; the eyes stay at the chosen one.
        ide.set_breakpoints(SOURCE, [line("step")])
        call: Future[Any] = trainer.step.call(1)
        stops(ide, 2)
        ask("next", threadId=first, singleThread=True)
        assert [stop["threadId"] for stop in stops(ide, 1)] == [first]
        assert lines() == [line("after"), line("step")]
        ask("next", threadId=second)
        hints = {stop["threadId"]: stop["preserveFocusHint"] for stop in stops(ide, 2)}
        assert hints == {first: True, second: False} and lines() == [line("after") + 1, line("after")]
        root.resume("continue", first)
        call.get(WAIT)
        call = both.step.call(1)
        stops(ide, 2)
        for how, function in (("stepIn", "add"), ("stepOut", "step")):
            ask(how, threadId=second)
            stops(ide, 2)
            assert functions() == [function] * 2

        # Values of the one whose stack frame it is.
        top = root.stack(second)[0]["id"]
        assert root.evaluate("self.rank", "hover", top) == root.evaluate("self.rank", "watch", top) == "1"
        ask("setExpression", frameId=top, expression="self.count", value="41")
        assert [root.evaluate("self.count", frame=root.stack(rank)[0]["id"]) for rank in ranks] == ["1", "41"]
        offered = ask("completions", frameId=top, text="self.cou", column=9)["targets"]
        assert "count" in [each["label"] for each in offered]
        scope = ask("scopes", frameId=top)["scopes"][0]["variablesReference"]
        found = ask("variables", variablesReference=scope)["variables"]
        (whole,) = (each["variablesReference"] for each in found if each["name"] == "self")
        parts = {each["name"]: each["value"] for each in ask("variables", variablesReference=whole)["variables"]}
        assert parts["count"] == "41"
        root.resume("continue", first)
        call.get(WAIT)

        # At a count, on a condition, only to say something, in a function; at what leaves an endpoint.
        ide.set_breakpoints(SOURCE, [line("turn")], hitCondition="3")
        call = both.turns.call(4)
        stops(ide, 2)
        assert [root.evaluate("turn", frame=root.stack(rank)[0]["id"]) for rank in ranks] == ["2", "2"]
        root.resume("continue", first)
        call.get(WAIT)
        ide.set_breakpoints(SOURCE, [line("turn")], logMessage="{self.rank} at {turn}")
        both.turns.call(2).get(WAIT)
        for rank in range(2):
            root.client.wait_event("output", lambda body, text=f"{rank} at 1": text in body["output"])  # type: ignore[misc]
        ide.set_breakpoints(SOURCE, [])
        ask("setFunctionBreakpoints", breakpoints=[{"name": "add"}])
        call = both.step.call(1)
        assert {stop["reason"] for stop in stops(ide, 2)} == {"function breakpoint"} and functions() == ["add"] * 2
        root.resume("continue", first)
        call.get(WAIT)
        ide.set_exceptions("uncaught")
        call = both.fail.call()
        assert {stop["reason"] for stop in stops(ide, 2)} == {"exception"} and lines() == [line("fail")] * 2
        assert ask("exceptionInfo", threadId=second)["details"]["message"] == "wrong value"
        root.resume("continue", first)
        with pytest.raises(ActorError, match="wrong value"):
            call.get(WAIT)

        # A stack is read while its rank runs. Threads of the user's own are threads, too.
        call = both.wait.call("lock")
        for rank in ranks:
            wait_until(lambda rank=rank: line("lock") in [each["line"] for each in root.stack(rank)], WAIT)  # type: ignore[misc]
        names = [each["name"] for each in root.threads()]
        assert names == ["gpus=0 (rank 0)", "rank 0: helper", "gpus=1 (rank 1)", "rank 1: helper"]
        ide.disconnect()
        assert not call.done()


@pytest.mark.slow
def test_an_ide_is_lost_and_another_one_comes() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served:
        for lost in ("resume", "stay"):
            with served.ide(meshView="threads", meshOnLost=lost) as ide:
                attached(ide)
                call = trainer.stop_here.call()
                stops(ide, 2)
            if lost == "resume":
                assert sorted(call.get(WAIT).values()) == [0, 1]
        with served.ide(meshView="threads") as ide:
            ranks = attached(ide)
            assert sorted(stop["threadId"] for stop in stops(ide, 2)) == sorted(ranks) and not call.done()
            assert [root_value(ide, rank) for rank in ranks] == ["0", "1"]
            ide.root.resume("continue", ranks[0])
            assert sorted(call.get(WAIT).values()) == [0, 1]
            call = trainer.stop_here.call()
            stops(ide, 2)
            ide.disconnect()
        assert sorted(call.get(WAIT).values()) == [0, 1]


@pytest.mark.slow
def test_a_rank_that_is_started_again() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged, max_restarts=1)
    pids = [facts[0] for facts in trainer.facts.call().get(WAIT).values()]
    with router() as served, served.ide(meshView="threads") as ide:
        first, second = attached(ide)
        ide.set_breakpoints(SOURCE, [line("step")])
        (point,) = ide.root.breakpoints[SOURCE]
        call = trainer.step.call(1)
        stops(ide, 2)
        os.kill(pids[1], signal.SIGKILL)
        ide.root.client.wait_event("thread", lambda body: body == {"reason": "exited", "threadId": second})
        with pytest.raises(MeshError):
            call.get(WAIT)
        # It is a new thread of the old name, with what was set; the other one stands on.
        wait_until(lambda: len(ide.root.threads()) == 2, WAIT, "its thread")
        assert attached(ide)[0] == first and ide.root.stack(first)[0]["line"] == line("step")
        ide.root.resume("continue", first)
        call = trainer.step.call(1)
        assert [stop["hitBreakpointIds"] for stop in stops(ide, 2)] == [[point["id"]]] * 2
        ide.root.resume("continue", first)
        call.get(WAIT)


def root_value(ide: Ide, rank: int) -> str:
    """What a rank has, where it stands."""
    return ide.root.evaluate("here", frame=ide.root.stack(rank)[0]["id"])
