"""The debug console of the mesh: lines for ranks that stand in the IDE, for ranks that run, and for none."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt import Future, proc_mesh
from tests.dap import debugged
from tests.dap.client import RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.debug.harness import person
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
AFTER = marked_line(SOURCE, "after")


@pytest.mark.slow
def test_lines() -> None:
    trainer = proc_mesh(gpus=3).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide(meshRanks="ranks(0:2)") as ide:
        ranks = ide.children(2)

        def say(line: str) -> str:
            return str(ide.root.client.request("evaluate", expression=line, context="repl")["result"])

        # Nobody stands: lines are the debugger's, and reach ranks that the IDE does not have.
        assert say("p trainer self.rank * 2").splitlines()[-3:] and "4" in say("p trainer self.rank * 2")
        assert "3 ranks" in say("where") and "3 ranks" in say("mesh where")
        assert say("n") == "no rank is stopped in the IDE"
        assert ide.root.threads() == [{"id": 1, "name": "mesh: 2 ranks, 0 stopped"}]

        ide.set_breakpoints(SOURCE, [marked_line(SOURCE, "step")])
        call: Future[Any] = trainer.step.call(1)
        ide.stopped(2)
        assert ide.root.threads() == [{"id": 1, "name": "mesh: 2 ranks, 2 stopped"}]
        # Those that run beside them are asked, too: what one has is compared with what the others have.
        assert say("p trainer self.rank + 10") == "[0] 10\n[1] 11\n[2] 12"
        assert say("p trainer (before, self.rank)").startswith(
            "[0] (0, 0)\n[1] (0, 1)\n[2] *** NameError: name 'before'"
        )
        assert say("p trainer ranks(0:2) before") == "[0-1] 0"
        assert say("cast trainer ranks(1) before + 7") == "[1] 7"
        assert "not defined" in say("p trainer ranks(1) nothing_of_that_name")
        # Ranks that run are asked as before.
        assert "2" in say("p trainer ranks(2) self.rank")

        assert say("cast trainer ranks(0) n") == "rank 0: stepping"
        ide.wait_for(lambda: ranks[0].stop and ranks[0].stop["reason"] == "step", "the step")
        assert ranks[0].stack()[0]["line"] == AFTER
        assert say("n ranks(1)") == "rank 1: stepping"
        ide.wait_for(lambda: ranks[1].stop and ranks[1].stop["reason"] == "step", "the step")
        assert say("c") == "ranks 0-1: continuing"
        assert set(call.get(WAIT).values()) == {1}

        # All that the IDE has are paused at once.
        ide.set_breakpoints(SOURCE, [])
        call = trainer.wait.call("recv")
        assert say("pause") == "ranks 0-1: asked to pause"
        ide.stopped(2)
        assert say("pause") == "no attached rank is running"

        for line, complaint in (
            ("wher", "wher"),
            ("n ranks(", "ranks("),
            ("n ranks(2)", "the IDE is not attached to"),
            ("n ranks(9)", "9"),
            ("p trainr 1", "trainr"),
            ("cast trainer", "cast"),
            ("wait trainer", "wait works only at the prompt"),
        ):
            with pytest.raises(RequestFailed) as caught:
                say(line)
            assert complaint in caught.value.message, line
        with pytest.raises(RequestFailed, match="choose the session of a rank"):
            ide.root.client.request("evaluate", expression="x", context="hover")
        with pytest.raises(RequestFailed, match="next works only in the session of a rank"):
            ide.root.client.request("next", threadId=1)
        ide.disconnect()
        assert not call.done()


def test_a_breakpoint_that_is_typed_goes_with_the_ide() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, person() as prompt:
        with served.ide(meshRanks="0") as ide:
            (rank,) = ide.children(1)
            said = rank.evaluate(f"mesh break debugged.py:{AFTER}")
            assert "until the IDE of process" in said and "stop only at breakpoints of the editor" in said
            # It is the debugger's: one that the IDE has runs through.
            call = trainer.step.call(1)
            prompt.wait("trainer", "ranks(1)")
            assert "rank 1 of trainer: resumed" in prompt("continue trainer ranks(1)")
            assert set(call.get(WAIT).values()) == {1}
            # One that is left does so too, though the IDE is still there.
            rank.disconnect()
            assert trainer.slice(gpus=0).step.call_one(1).get(WAIT) == 2
            told = prompt("breaks")
            assert "until the IDE of process" in told and "detaches, which detached from [0]" in told
            ide.disconnect()
        prompt.until("breaks", "no breakpoints are set")
