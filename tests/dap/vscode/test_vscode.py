"""A real VS Code on the ranks of a mesh: what a person sees in its window, and what the program does."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from meshrt import Future, proc_mesh
from meshrt.debug.dap.router.launch_json import adapter_entry, write_launch_json
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.dap.session import INITIALIZE
from tests.dap.vscode.installed import why_not
from tests.dap.vscode.workbench import (
    BREAKPOINT,
    CALL_STACK,
    CONSOLE,
    NOTICES,
    UNVERIFIED,
    VARIABLES,
    Workbench,
    workbench,
)
from tests.pictures.vscode import shoot
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")
pytestmark = [pytest.mark.nightly, pytest.mark.skipif(bool(why_not()), reason=why_not())]

WAIT = 30.0
SOURCE = debugged.__file__
ADDED = marked_line(SOURCE, "add")
RANKS = [f"gpus={rank} (rank {rank})" for rank in range(4)]


def begin(window: Workbench) -> None:
    """Look at Run and Debug, and press F5."""
    window.press("Control", "Shift", "d")
    window.press("F5")


def set_breakpoint(window: Workbench) -> None:
    """Set one where all ranks come by; returns when the window shows that it is one."""
    window.open(SOURCE, ADDED)
    window.press("F9")
    window.see(BREAKPOINT, "")
    window.miss(UNVERIFIED, "")


def stand(window: Workbench) -> None:
    """Wait until all ranks stand at the breakpoint, and VS Code, which moves to what stops, has moved."""
    window.see(CALL_STACK, *(f"{name}Paused on breakpoint" for name in RANKS))
    for name in RANKS:
        window.wait_answer(name, "stackTrace")


def results(*calls: Future[Any]) -> list[Any]:
    """What calls have come to. A `get` alone would wait for ever: ranks that still stand hold its deadline, too."""
    wait_until(lambda: all(call.done() for call in calls), WAIT, "all ranks that were asked have gone on")
    return [call.get() for call in calls]


def test_sessions_without_a_port(tmp_path: Path) -> None:
    trainer = proc_mesh(gpus=4).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    write_launch_json(tmp_path, adapter_entry())
    with workbench(tmp_path) as window:
        set_breakpoint(window)
        begin(window)
        window.see(CALL_STACK, "meshrtRunning", *(f"{name}Running" for name in RANKS))
        call = trainer.step.call(1)
        stand(window)
        window.press("Shift", "F5")
        assert results(call)[0].values() == [1, 1, 1, 1]


def test_a_session_for_each_rank(tmp_path: Path) -> None:
    trainer = proc_mesh(gpus=4).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router("--port", "0", "--write-launch-json", str(tmp_path)), workbench(tmp_path) as window:
        begin(window)
        assert len(window.see(CALL_STACK, "meshrtRunning", *(f"{name}Running" for name in RANKS))) == 5
        passed = window.messages("meshrt")
        asked = [message["command"] for message in passed if message["type"] == "request"]
        assert asked.count("startDebugging") == 4
        # What the tests without a window say of themselves.
        said = {**INITIALIZE, "clientName": "code-server", "supportsStartDebuggingRequest": True}
        assert passed[0]["arguments"] == said

        # The console of the mesh, while nothing stands.
        window.choose("meshrt")
        window.say("p trainer self.count")
        window.see(CONSOLE, "[0-3] 0")

        # All ranks run into a breakpoint that is set in the editor.
        set_breakpoint(window)
        calls = [trainer.slice(gpus=rank).step.call_one(10 + rank) for rank in range(4)]
        stand(window)
        # Those of the rank that is chosen: each has been called with a number of its own.
        window.choose(RANKS[2])
        window.see(VARIABLES, "before, value 0", "by, value 12")
        window.drive("Step Over", "F10")
        window.see(CALL_STACK, f"{RANKS[2]}Paused on step", f"line {ADDED + 1}")
        window.see(VARIABLES, "total, value 12")
        window.say("mesh where")
        window.see(CONSOLE, f"debugged.py:{ADDED} stopped in the debugger", f"debugged.py:{ADDED + 1}")
        window.drive("Continue", "F5")
        window.see(CALL_STACK, f"{RANKS[2]}Running", *(f"{RANKS[rank]}Paused on breakpoint" for rank in (0, 1, 3)))
        assert results(calls[2]) == [12]

        # Goodbye from the session of the mesh: all that stand go on.
        window.choose("meshrt")
        window.drive("Disconnect", "Shift", "F5")
        window.miss(CALL_STACK, "")
        assert results(*calls) == [10, 11, 12, 13]
        (after,) = results(trainer.step.call(1))
        assert list(after.values()) == [11, 12, 13, 14]


def test_ranks_as_threads(tmp_path: Path) -> None:
    trainer = proc_mesh(gpus=4).spawn("trainer", Debugged)
    pids = [facts[0] for facts in trainer.facts.call().get(WAIT).values()]
    with router("--port", "0", "--write-launch-json", str(tmp_path)) as served, workbench(tmp_path) as window:
        # As a person adds a key to the entry.
        entry = {**served.configuration, "meshView": "threads"}
        (tmp_path / ".vscode" / "launch.json").write_text(json.dumps({"version": "0.2.0", "configurations": [entry]}))
        begin(window)
        window.see(CALL_STACK, *(f"{name}Running" for name in RANKS))
        set_breakpoint(window)
        call = trainer.step.call(4)
        window.see(CALL_STACK, *(f"{name}Paused on breakpoint" for name in RANKS))
        window.see(VARIABLES, "by, value 4")
        window.say("mesh n ranks(1:3)")
        window.see(CALL_STACK, *(f"{RANKS[rank]}Paused on step" for rank in (1, 2)))
        # What stands is one program here: all of it goes on.
        window.drive("Continue", "F5")
        window.see(CALL_STACK, *(f"{name}Running" for name in RANKS))
        (sums,) = results(call)
        assert list(sums.values()) == [4] * 4
        os.kill(pids[3], signal.SIGKILL)
        window.see(NOTICES, "meshrt: gpus=3 (rank 3): the rank was killed by SIGKILL")
        window.miss(CALL_STACK, RANKS[3])
        window.drive("Disconnect", "Shift", "F5")
        window.miss(CALL_STACK, "")


def test_the_picture_of_the_documentation(tmp_path: Path) -> None:
    shoot(tmp_path / "window.png")
    assert (tmp_path / "window.png").read_bytes().startswith(b"\x89PNG")
