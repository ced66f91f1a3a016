"""The IDE of the tests, on programs under plain debugpy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dap.client import RequestFailed
from tests.dap.debuggee import SOURCE, debuggee
from tests.dap.ide import Ide
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

DOUBLED = marked_line(SOURCE, "doubled")


@pytest.mark.slow
@pytest.mark.parametrize("start_debugging", [True, False], ids=["startDebugging", "debugpyAttach"])
def test_announced_processes(tmp_path: Path, start_debugging: bool) -> None:
    with debuggee(tmp_path, children=2) as program:
        ide = Ide(program.address, {"connect": program.connect}, start_debugging=start_debugging)
        ide.set_breakpoints(SOURCE, [DOUBLED], condition="number != 5")
        with ide:
            children = ide.children(2)
            assert program.said(2) == ["child0 up", "child1 up"]
            for session in (ide.root, *children):
                assert [one["verified"] for one in session.breakpoints[SOURCE]] == [True], session

            program.tell("4")
            standing = ide.stopped(3)
            assert {session.stop["reason"] for session in standing if session.stop} == {"breakpoint"}
            assert [session.stack()[0]["line"] for session in standing] == [DOUBLED] * 3
            assert ide.evaluate("answer") == dict.fromkeys(ide.sessions, "8")
            assert children[0].variables() == {"answer": "8", "number": "4"}
            assert [thread["name"] for thread in children[0].threads()] == ["MainThread"]

            # One steps out of the function; the others stand where they stood.
            children[0].resume("stepOut")
            assert {session.name: session.stack()[0]["name"] for session in ide.stopped(3)} == {
                "mesh": "double",
                children[0].name: "main",
                children[1].name: "double",
            }
            ide.continue_all()
            assert program.said(3) == ["child0 8", "child1 8", "root 8"]

            # Nobody stops where the condition does not hold.
            program.tell("5")
            assert program.said(3) == ["child0 10", "child1 10", "root 10"]

            # Whether it says goodbye or not: when the debugger is gone, nobody stands.
            program.tell("6")
            ide.stopped(3)
            ide.disconnect() if start_debugging else ide.kill()
            assert program.said(3) == ["child0 12", "child1 12", "root 12"]
            assert ide.sessions == {}


def test_what_is_refused_is_raised(tmp_path: Path) -> None:
    # Of a program of its own: debugpy's adapter, which ends that session, may hang up on who comes next.
    with debuggee(tmp_path) as program:
        with pytest.raises(ConnectionError, match="no adapter at"):
            Ide((program.address[0], 1), {}).attach()
        with pytest.raises(RequestFailed, match='"connect"'), Ide(program.address, {"connect": 1}):
            pass


def test_one_process(tmp_path: Path) -> None:
    with debuggee(tmp_path) as program, Ide(program.address, {"connect": program.connect}) as ide:
        # What is busy is paused, and let go by changing a variable.
        program.tell("spin")
        assert program.said() == ["spinning"]
        ide.root.pause()
        ide.stopped()
        assert ide.root.stop is not None and ide.root.stop["reason"] == "pause"
        ide.root.evaluate("busy = False")
        ide.continue_all()
        assert program.said() == ["root span"]

        # Breakpoints come and go while it runs.
        assert ide.set_breakpoints(SOURCE, [DOUBLED])["mesh"][0]["verified"]
        program.tell("7")
        ide.stopped()
        assert ide.set_breakpoints(SOURCE, []) == {"mesh": []}
        ide.continue_all()
        program.tell("8")
        assert program.said(2) == ["root 14", "root 16"]

        program.end()
        ide.root.wait_over()
        assert "terminated" in [event.name for event in ide.root.client.events]
        with pytest.raises(AssertionError, match="not within 0 s: 1 sessions that stand\n  mesh: ended"):
            ide.stopped(seconds=0)
