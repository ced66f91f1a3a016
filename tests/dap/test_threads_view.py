"""One session in which ranks are threads."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

import pytest

from meshrt import Future, proc_mesh
from meshrt.hooks.facts import Body
from meshrt.mesh.program import start_root
from tests.dap import debugged
from tests.dap.client import RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.support.markers import marked_line
from tests.support.waiting import holds_within, wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
STEP, AFTER, TURN = (marked_line(SOURCE, name) for name in ("step", "after", "turn"))


def stops(ide: Ide, count: int) -> list[Body]:
    """Wait for so many stops that nobody has seen yet."""
    return [ide.root.client.wait_event("stopped") for _ in range(count)]


def line_of(ide: Ide, thread: int) -> Any:
    return ide.root.stack(thread)[0]["line"]


@pytest.mark.slow
def test_four_ranks() -> None:
    trainer = proc_mesh(gpus=4).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide(meshView="threads") as ide:
        root = ide.root
        ide.set_breakpoints(SOURCE, [STEP])
        assert root.breakpoints[SOURCE][0]["verified"]
        threads = {each["name"]: each["id"] for each in root.threads()}
        assert list(threads) == [f"gpus={rank} (rank {rank})" for rank in range(4)]
        numbers = list(threads.values())

        call: Future[Any] = trainer.step.call(3)
        came = stops(ide, 4)
        assert sorted(each["threadId"] for each in came) == sorted(numbers)
        # The eyes of a person stay at the first.
        assert [each["preserveFocusHint"] for each in came] == [False, True, True, True]

        # A step is that of one rank, and what a person waits for.
        root.resume("next", numbers[2])
        (stepped,) = stops(ide, 1)
        assert (stepped["threadId"], stepped["preserveFocusHint"]) == (numbers[2], False)
        assert [line_of(ide, number) for number in numbers] == [STEP, STEP, AFTER, STEP]

        # Values are those of the rank whose stack frame it is.
        tops = [root.stack(number)[0]["id"] for number in numbers]
        assert [root.evaluate("self.rank", frame=top) for top in tops] == ["0", "1", "2", "3"]
        scopes = [root.client.request("scopes", frameId=top)["scopes"][0]["variablesReference"] for top in tops]
        assert len(set(tops)) == len(set(scopes)) == 4
        root.client.request("setVariable", variablesReference=scopes[1], name="before", value="10")
        assert [root.evaluate("before", frame=top) for top in tops] == ["0", "10", "0", "0"]

        # The mesh's console, here and at a stack frame.
        say = root.client.request
        assert say("evaluate", expression="p trainer before", context="repl")["result"] == "[0,2-3] 0\n[1] 10"
        assert (
            "stopped in the debugger"
            in say("evaluate", expression="mesh where", context="repl", frameId=tops[0])["result"]
        )
        cast = "mesh cast trainer ranks(0:2) n"
        assert say("evaluate", expression=cast, context="repl", frameId=tops[1])["result"] == "ranks 0-1: stepping"
        # The eyes stay at the rank whose stack frame a person was looking at.
        hints = {each["threadId"]: each["preserveFocusHint"] for each in stops(ide, 2)}
        assert hints == {numbers[0]: True, numbers[1]: False}
        assert [line_of(ide, number) for number in numbers] == [AFTER, AFTER, AFTER, STEP]
        with pytest.raises(RequestFailed, match="wher"):
            say("evaluate", expression="wher", context="repl")
        with pytest.raises(RequestFailed, match=r"this console runs Python on .*: mesh where"):
            say("evaluate", expression="where", context="repl", frameId=tops[3])
        with pytest.raises(RequestFailed, match="this belongs to an earlier stop"):
            say("scopes", frameId=tops[0])
        # Editors go on naming that stack frame in the console.
        assert "4 ranks" in say("evaluate", expression="where", context="repl", frameId=tops[0])["result"]
        with pytest.raises(RequestFailed, match="thread 999 no longer exists"):
            say("stackTrace", threadId=999)

        # One goes on alone, or all do.
        assert say("continue", threadId=numbers[3], singleThread=True) == {"allThreadsContinued": False}
        assert say("continue", threadId=numbers[0]) == {"allThreadsContinued": True}
        assert sorted(call.get(WAIT).values()) == [3, 3, 3, 13]

        # What blocks is paused. A rank that comes later has the breakpoints, too.
        call = trainer.wait.call("recv")
        root.pause(numbers[1])
        assert stops(ide, 1)[0]["reason"] == "pause"
        # What keeps a rank from answering is interrupted, and it is said of which one.
        top = root.stack(numbers[1])[0]["id"]
        endless = root.client.begin("evaluate", expression="while True: pass", context="repl", frameId=top)
        said = "rank 1: the running evaluation is interrupted"
        assert root.evaluate("mesh pause ranks(1)", frame=0) == said
        with pytest.raises(RequestFailed, match="KeyboardInterrupt"):
            root.client.result_of(endless, "what does not end")
        wait_until(lambda: "gpus=1 (rank 1): the running evaluation is interrupted" in root.client.output, WAIT)
        late = proc_mesh(n=1, name="late").spawn("other", Debugged)
        wait_until(lambda: any("late" in each["name"] for each in root.threads()), WAIT, "a thread of the late rank")
        other = late.step.call(1)
        assert stops(ide, 1)[0]["reason"] == "breakpoint"
        ide.disconnect()
        assert other.get(WAIT).item(n=0) == 1
        assert not call.done()


@pytest.mark.slow
def test_all_that_stand_step_and_forty_ranks_are_rows() -> None:
    trainer = proc_mesh(hosts=2, gpus=20).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide(meshView="threads", meshStep="all") as ide:
        root = ide.root
        rows(ide, "40 ranks 0-39 running")
        ide.set_breakpoints(SOURCE, [STEP], condition="self.rank != 7")
        call = trainer.step.call(1)
        row = rows(ide, f"39 ranks 0-6,8-39 at debugged.py:{STEP} (step)", "rank 7 running")[0]
        stops(ide, 1)
        assert line_of(ide, row) == STEP
        # The first one answers for all.
        assert root.evaluate("self.rank", frame=root.stack(row)[0]["id"]) == "0"
        assert (
            root.client.request("evaluate", expression="p trainer ranks(5:8) self.rank", context="repl")["result"]
            == "[5] 5\n[6] 6\n[7] 7"
        )
        root.resume("next", row)
        row = rows(ide, f"39 ranks 0-6,8-39 at debugged.py:{AFTER} (step)", "rank 7 running")[0]
        root.resume("continue", row)
        assert set(call.get(WAIT).values()) == {1}
        rows(ide, "40 ranks 0-39 running")
        ide.disconnect()


def rows(ide: Ide, *names: str) -> list[int]:
    """Wait until there are these rows; return their numbers."""
    found: list[Body] = []

    def there() -> bool:
        found[:] = ide.root.threads()
        return [row["name"] for row in found] == list(names)

    assert holds_within(WAIT, there), found
    return [int(row["id"]) for row in found]


@pytest.mark.slow
def test_what_raises_in_breakpoints_is_said_once() -> None:
    trainer = proc_mesh(gpus=4).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide(meshView="threads") as ide:
        name = "NameError: name 'nope' is not defined"
        for what, more, error in (
            ("condition of the breakpoint", {"condition": "nope > 1"}, name),
            ("condition of the breakpoint", {"condition": "total / 0"}, "ZeroDivisionError: division by zero"),
            ("hit count of the breakpoint", {"hitCondition": "nope == 1"}, name),
            ("log point", {"logMessage": "at {nope}"}, name),
        ):
            ide.set_breakpoints(SOURCE, [TURN], **more)
            assert set(trainer.turns.call(100).get(WAIT).values()) == {4950}
            said = str(ide.root.client.wait_event("output", lambda body: body["category"] == "important")["output"])
            assert f": the {what} at debugged.py:{TURN} " in said and said.endswith(f": {error}\n"), said
        ide.disconnect()
        # Not by each rank, and not at each hit.
        categories = [each.body["category"] for each in ide.root.client.events if each.name == "output"]
        assert categories.count("important") == 4 and "stdout" not in categories


@pytest.mark.slow
def test_a_silent_rank_keeps_nobody_waiting() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    (pids,) = (mesh.pids for mesh in start_root().services.meshes())
    with router() as served, contextlib.ExitStack() as goes_on:
        goes_on.callback(os.kill, pids[1], signal.SIGCONT)
        os.kill(pids[1], signal.SIGSTOP)
        ide = served.ide(meshView="threads")
        with ide:
            ide.set_breakpoints(SOURCE, [STEP])
            rows(ide, "gpus=0 (rank 0)", "gpus=1 (rank 1) does not answer")
            assert "gpus=1 (rank 1) does not answer (" in ide.root.client.output
            # It joins when it answers, with the breakpoint that was set meanwhile.
            os.kill(pids[1], signal.SIGCONT)
            rows(ide, "gpus=0 (rank 0)", "gpus=1 (rank 1)")
            call = trainer.step.call(1)
            stops(ide, 2)
            ide.root.resume("continue", ide.root.threads()[0]["id"])
            assert set(call.get(WAIT).values()) == {1}

            os.kill(pids[1], signal.SIGSTOP)
            ide.disconnect()
        os.kill(pids[1], signal.SIGCONT)
        assert set(trainer.step.call(1).get(WAIT).values()) == {2}
