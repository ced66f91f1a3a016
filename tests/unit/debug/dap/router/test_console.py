"""The console of the mesh: what is said behind a line, and that it ends when its session does, whatever it runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from meshrt.debug.dap.router import console
from meshrt.debug.dap.router.console import Console
from meshrt.debug.dap.router.ranks import Names
from meshrt.errors import MeshError
from tests.unit.debug.dap.router.fakes import FakeProgram

WAIT = 10.0


class Prompt:
    """A prompt at which each line is run until the connection ends."""

    runs = threading.Event()
    at_rank = False

    def __init__(self, _program: Any, _session: int) -> None:
        self.left = threading.Event()
        self.client = self

    def closed(self) -> bool:
        return False

    def run_line(self, line: str) -> str:
        self.runs.set()
        assert self.left.wait(WAIT), "nobody has left"
        raise MeshError(f"the program is gone while it runs {line}")

    def leave(self) -> None:
        self.left.set()


def test_a_line_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_Prompt", Prompt)

    async def scenario() -> None:
        link: Any = FakeProgram()
        made = Console(link, dict, "", Names(), 1)
        first = asyncio.ensure_future(made.run("where"))
        assert await asyncio.to_thread(Prompt.runs.wait, WAIT)
        second = asyncio.ensure_future(made.run("list"))
        await asyncio.sleep(0)
        made.close()
        with pytest.raises(MeshError, match="while it runs where"):
            await first
        # What was to come behind it is not obeyed any more.
        with pytest.raises(MeshError, match="the session has ended"):
            await second

    asyncio.run(asyncio.wait_for(scenario(), WAIT))


class Obedient(Prompt):
    """A prompt that obeys every line at once."""

    def run_line(self, line: str) -> str:
        return f"obeyed {line}"


def test_help_lists_what_can_be_typed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_Prompt", Obedient)

    async def scenario() -> None:
        link: Any = FakeProgram()
        made = Console(link, dict, "", Names(), 1)
        words = {line.split()[0] for line in (await made.run("mesh help")).splitlines()}
        assert words >= {"n", "s", "r", "c", "pause", "where", "p", "break", "attach"} and not words & {"wait", "quit"}
        for word in words - {"ranks", "all", "`help"}:
            assert (await made.run(f"help {word}")).startswith(word)
        assert "also: cont, continue" in await made.run("? continue")
        for line, why in (
            ("q", "this console ends with its session"),
            ("help wait", "wait works only at the prompt"),
            ("help u", "command of pdb, for a rank that is stopped at a prompt"),
            ("help whre", "'where'"),
        ):
            with pytest.raises(MeshError, match=why):
                await made.run(line)
        # Of a rank that the console is attached to, they are pdb's.
        await made.run("where")
        monkeypatch.setattr(Obedient, "at_rank", True)
        for line in ("q", "help n"):
            assert await made.run(line) == f"obeyed {line}"
        made.close()

    asyncio.run(asyncio.wait_for(scenario(), WAIT))


def test_what_was_obeyed_is_told_whatever_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_Prompt", Obedient)

    async def scenario() -> None:
        link: Any = FakeProgram()
        made = Console(link, dict, "", Names(), 1)
        # The last ones are no commands: of a rank that the prompt was attached to, and of nobody.
        for line in ("where", "x + 1", "# nothing"):
            assert await made.run(line) == f"obeyed {line}"
        for line in ("b a.py:3", "tbreak a.py:3"):
            assert (await made.run(line)).startswith(
                f"obeyed {line}\nattached ranks stop only at breakpoints of the editor; "
            )
        assert "the mode is for prompts" in await made.run("pm on")
        made.close()

    asyncio.run(asyncio.wait_for(scenario(), WAIT))
