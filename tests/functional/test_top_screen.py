"""The screen of ``meshrt top`` on ranks that run: driven by keys, read as it is shown; at a terminal; in a browser."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import meshrt
from meshrt import ActorMesh, SupervisionError, proc_mesh
from meshrt.top.columns import Sorting
from meshrt.transport.tools import own_program
from tests.debug.pty_harness import screen
from tests.support.holders import Holder
from tests.support.programs import another_program, run_python

pytest.importorskip("textual", reason="the screen needs textual (pip install --group top)")

from textual.pilot import Pilot

from meshrt.top.screen.app import TopApp
from meshrt.top.screen.ranks import RankTable

WAIT = 30


class Seen:
    """The screen, and whoever sits before it."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    def text(self) -> str:
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)

    def rows(self) -> list[str]:
        """The lines of the table, one blank between their words."""
        return [" ".join(line.split()) for line in self.text().splitlines() if re.match(r" *\d+  hosts=", line)]

    async def sees(self, *texts: str) -> str:
        """Wait until all of these are shown."""
        await self.until(lambda: all(text in self.text() for text in texts), texts)
        return self.text()

    async def until(self, condition: Callable[[], object], what: object = "") -> None:
        async with asyncio.timeout(WAIT):
            while not condition():
                await self.pilot.pause(0.02)
        assert condition(), what

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)


def shown(act: Callable[[Seen], Awaitable[None]], *, size: tuple[int, int] = (150, 30)) -> None:
    """Have somebody sit before the screen of this program."""
    program = own_program()
    assert program is not None

    async def run() -> None:
        app = TopApp(program, ranks="", actor="", sorting=Sorting(), every=0.25)
        async with app.run_test(size=size) as pilot:
            seen = Seen(app, pilot)
            try:
                await act(seen)
            except TimeoutError:
                raise AssertionError(seen.text()) from None

    asyncio.run(run())


@pytest.mark.slow
def test_a_person_finds_a_rank_looks_into_it_and_sees_it_die_and_the_program_end(tmp_path: Path) -> None:
    mesh = proc_mesh(hosts=2, gpus=2)
    holder: ActorMesh[Holder] = mesh.spawn("holder", Holder).get(WAIT)
    pids = holder.pid.call().get(WAIT).values()
    stands, spins = holder.slice(hosts=1, gpus=1), holder.slice(hosts=0, gpus=1)
    stands.halt.broadcast()
    for _ in range(3):
        stands.pid.broadcast()
    spins.hold_gil.broadcast(str(tmp_path / "inside"))

    async def act(me: Seen) -> None:
        await me.sees("4 ranks:", "1 stopped", "at holders.py:", "every 0.", "/ Select", "? Help")
        assert [row.split()[0] for row in me.rows()] == ["0", "1", "2", "3"]
        # The one that holds the GIL has its row, and uses the most of the processors.
        await me.press("c")
        await me.until(lambda: me.rows()[0].startswith("1 ") and "not-answering" in me.rows()[0], "by CPU")
        os.kill(pids[1], signal.SIGKILL)
        await me.sees("was killed by SIGKILL", "1 dead")
        await asyncio.to_thread(lose, spins)
        await me.press("u")
        await me.until(lambda: me.rows()[0].startswith("3 "), "by what waits")
        await me.press("u")
        await me.until(lambda: not me.rows()[0].startswith("3 "), "the other way round")
        # A selection is taken while it is written; what is none yet leaves what is shown, and says why.
        await me.press("slash", *"stopped")
        await me.until(lambda: [row.split()[0] for row in me.rows()] == ["3"], "those that are stopped")
        await me.press(*" &")
        await me.sees("stopped &", "expected", "selected: stopped")
        await me.press("backspace", "backspace", "enter", "enter")
        await me.sees("mesh1 rank 3 (hosts=1,gpus=1)", "attach holder 3", "halt", "breakpoint()", "3 waiting")
        await me.press("2")
        await me.sees("self.weights", "halt() local")
        await me.press("3")
        await me.sees("no output yet")
        await me.press("escape", "escape")
        await me.until(lambda: len(me.rows()) == 4, "all ranks")
        await me.press("question_mark")
        await me.sees("GROWTH", "half as often")
        await me.press("escape", "home", "n", "space")
        await me.sees("paused")
        await asyncio.to_thread(meshrt.shutdown_context, 0.0)  # while nobody looks
        await me.sees("ended at", "these are the last values", "was killed by SIGKILL")
        assert me.app.is_running and len(me.rows()) == 4
        await me.press("enter")
        await me.sees("the program has ended")
        await me.press("escape", "q")
        await me.until(lambda: me.app.return_code == 0, "left")

    shown(act)


def lose(rank: ActorMesh[Holder]) -> None:
    """Be told of the rank that was killed: nothing is left to be reported."""
    with pytest.raises(SupervisionError):
        rank.pid.call_one().get(WAIT)


@pytest.mark.slow
def test_the_cursor_is_seen_whatever_room_there_was_when_it_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    proc_mesh(hosts=6, gpus=2).spawn("holder", Holder).get(WAIT)

    async def act(me: Seen) -> None:
        await me.until(lambda: len(me.rows()) > 4, "rows")
        with monkeypatch.context() as patch:
            patch.setattr(RankTable, "scroll_to", lambda *_args, **_options: None)  # as before it is laid out
            await me.press("end")
        await me.until(lambda: me.rows()[-1].startswith("11 "), "the last")
        await me.pilot.resize_terminal(64, 10)
        await me.until(lambda: len(me.rows()) < 5 and me.rows()[-1].startswith("11 "), "the last, in a smaller window")

    shown(act, size=(64, 14))


@pytest.mark.nightly
def test_the_cursor_stays_with_its_rank_and_a_selection_may_select_nothing() -> None:
    proc_mesh(hosts=6, gpus=2).spawn("holder", Holder).get(WAIT)

    async def act(me: Seen) -> None:
        await me.until(lambda: me.rows(), "rows")
        assert len(me.rows()) < 12  # the others are beyond the edge
        await me.press("end")
        await me.until(lambda: me.rows()[-1].startswith("11 "), "the last")
        me.app.sorting = Sorting("rank", reverse=True)  # as if rows had changed places by themselves
        await me.until(lambda: me.rows()[0].startswith("11 "), "it goes along")
        await me.press("enter")
        await me.sees("mesh1 rank 11 (hosts=5,gpus=1)")
        await me.press("escape", "end", "n")
        await me.until(lambda: me.rows()[0].startswith("0 "), "a person who wants another order wants its begin")
        await me.press("slash", *"stopped", "enter")
        await me.sees("this selects no rank", "no ranks")
        assert me.rows() == []
        await me.press("escape")
        await me.until(lambda: me.rows(), "all ranks")

        await me.press("right", "right", "right")
        head = await me.sees("NOTE")
        assert "RANK" in head and "COORDS" not in head  # which rank it is can be seen wherever a person looks
        await me.press("left", "left", "left")
        await me.sees("COORDS")
        titles = next(line for line in me.text().splitlines() if "COORDS" in line)
        await me.pilot.click(RankTable, offset=(titles.index("PID"), 0))
        assert me.app.sorting == Sorting("pid")
        await me.press("question_mark", "ctrl+c")
        await me.until(lambda: me.app.return_code == 0, "left")

    shown(act, size=(64, 14))


def test_a_program_that_ends_before_the_screen_runs_has_ended() -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    program = own_program()
    assert program is not None

    async def run() -> None:
        app = TopApp(program, ranks="", actor="", sorting=Sorting(), every=0.25)
        meshrt.shutdown_context(0.0)
        async with app.run_test(size=(150, 10)) as pilot:
            await Seen(app, pilot).sees("ended at", "no ranks")

    asyncio.run(run())


@pytest.mark.slow
def test_at_a_terminal_and_without_one() -> None:
    code = (
        "from meshrt import proc_mesh\nfrom tests.support.holders import Holder\n"
        "proc_mesh(n=2).spawn('holder', Holder).get()"
    )
    with another_program(code) as program:
        with screen("-m", "meshrt", "top", str(program.pid), "--ranks", "n=1") as top:
            top.sees_all("1 rank: 1 idle", "selected: n=1", "Look into rank")
            top.child.send("q")
            top.ends()
            assert top.code == 0
        done = run_python("-m", "meshrt", "top", str(program.pid))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "meshrt top: the screen needs a terminal; expected a terminal, --once or --serve\n"
        assert program.stdin is not None
        program.stdin.write("\n")
