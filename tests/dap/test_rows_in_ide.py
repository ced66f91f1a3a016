"""Ranks as rows of one session: what an IDE is told when they change."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from meshrt import proc_mesh
from meshrt.debug.dap.router import rank_threads
from meshrt.debug.dap.router.admission import UnixAdmission
from meshrt.debug.dap.router.router import Router
from meshrt.debug.dap.wire import failure
from meshrt.hooks.facts import Body
from meshrt.inspect.programs import choose
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.support.markers import marked_line
from tests.support.pausing import pause
from tests.support.programs import run_python

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
AFTER = marked_line(SOURCE, "after")


@contextmanager
def routed(path: Path) -> Iterator[None]:
    """A router of this program, in this process, at a unix socket."""
    ready, leave = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        router = Router(choose(str(os.getpid()), how=""), "", UnixAdmission(), leave.set)
        await router.start()
        async with await loop.create_unix_server(router.connection, path):
            ready.set()
            await leave.wait()
            await router.close()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="router")
    thread.start()
    try:
        assert ready.wait(WAIT)
        yield
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(WAIT)
        loop.close()


@pytest.mark.slow
def test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_threads, "ROWS_FROM", 2)
    trainer = proc_mesh(gpus=4).spawn("trainer", Debugged)
    pids = [facts[0] for facts in trainer.facts.call().get(WAIT).values()]
    path = tmp_path / "router"
    with routed(path), Ide(str(path), {"meshView": "threads"}) as ide:
        root = ide.root

        def told(name: str) -> list[Body]:
            return [event.body for event in root.client.events if event.name == name]

        def shows(*rows: tuple[str, bool]) -> None:
            """Wait until each of these stops has been told of: its description, and whether it draws the eyes."""

            def seen() -> set[tuple[str, bool]]:
                return {(body["description"], not body["preserveFocusHint"]) for body in told("stopped")}

            ide.wait_for(lambda: set(rows) <= seen(), f"{rows}")

        root.client.wait_event("output", lambda body: body["output"].startswith("meshrt: 4 ranks; lines that begin"))
        (running,) = root.threads()
        assert told("thread") == [{"reason": "started", "threadId": running["id"]}]
        ide.set_breakpoints(SOURCE, [AFTER])
        call = trainer.step.call(5)
        ide.wait_for(lambda: ("4 ranks: breakpoint") in [body["description"] for body in told("stopped")], "4 ranks")
        assert [row["name"] for row in root.threads()] == [f"4 ranks 0-3 at debugged.py:{AFTER} (step)"]

        # A row that others have left is told of as well, and draws no eyes.
        assert root.evaluate("mesh n ranks(0:2)", frame=0) == "ranks 0-1: stepping"
        shows(("2 ranks: step", True), ("2 ranks: breakpoint", False))
        left = next(row["id"] for row in root.threads() if row["name"].startswith("2 ranks 2-3"))
        assert root.evaluate("mesh c ranks(0)", frame=0) == "rank 0: continuing"
        shows(("rank 1: step", False))
        assert [row["name"].partition(" at ")[0] for row in root.threads()] == [
            "2 ranks 2-3",
            "rank 1",
            "rank 0 running",
        ]
        failed = "[1-3] NameError: name 'unknown' is not defined\n[0] *** NameError"
        assert root.evaluate("mesh p trainer by + unknown", frame=0).startswith(failed)

        # Nothing stands any more: the IDE lets go of the rows that were, and asks for the one that is left.
        assert left not in [body["threadId"] for body in told("continued")]
        begun = len([body for body in told("thread") if body["reason"] == "started"])
        root.evaluate("mesh c", frame=0)
        ide.wait_for(
            lambda: len([body for body in told("thread") if body["reason"] == "started"]) > begun,
            "the row of what runs",
        )
        assert left in [body["threadId"] for body in told("continued")]
        assert sorted(call.get(WAIT).values()) == [5] * 4
        assert [row["name"] for row in root.threads()] == ["4 ranks 0-3 running"]

        pause(*pids[:2])  # so that both are gone before anybody hears of one
        for pid in pids[:2]:
            os.kill(pid, signal.SIGKILL)
        root.client.wait_event("output", lambda body: body.get("category") == "important")
        ends = [body["output"] for body in told("output") if body.get("category") == "important"]
        assert ends == ["meshrt: ranks 0-1: the rank was killed by SIGKILL\n"]
    root.wait_over()


def test_what_nobody_has_asked_for_is_refused_quietly() -> None:
    for command, shown in (("scopes", False), ("evaluate", False), ("next", True), ("attach", True)):
        error = failure({"seq": 1, "command": command}, "too {late}")["body"]["error"]
        assert (error["showUser"], error["format"]) == (shown, "too (late)")


def test_a_program_named_last_is_told_where_it_belongs() -> None:
    # The folder is optional: what stands behind --write-launch-json is one.
    done = run_python("-m", "meshrt", "dap", "--write-launch-json", "4711")
    assert done.returncode == 2
    assert "there is no folder 4711; the program comes first: meshrt dap RUN --write-launch-json" in done.stderr
