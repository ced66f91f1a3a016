"""The session of one rank: what passes through, in which order, and what the router itself serves."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.rank_view import Owner, RankView
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Message, event, failure, response
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, settled, until

RANK = Rank("m1", 0, "rank 0")


class Mesh:
    """The session of the mesh: it runs lines, and notes the sessions that have ended."""

    def __init__(self) -> None:
        self.ended: list[RankView] = []

    async def run_line(self, line: str, view: RankView) -> str:
        assert view.rank is RANK
        if "fail" in line:
            raise TimeoutError
        return f"ran {line}"

    def costs(self, price: str) -> None:
        assert not price

    def left(self, view: RankView) -> None:
        self.ended.append(view)

    def lost(self, rank: Rank, why: str) -> None:
        raise AssertionError(why)


async def attached(ide: FakeIde, owner: Mesh | None = None) -> RankView:
    view = RankView(cast(Peer, ide), Configuration.read({}), RANK, cast(Owner, owner) if owner else None)
    view.attach(request(1, "attach"), {})
    await until(lambda: ide.answer(1))
    return view


def test_what_passes_through_keeps_its_order() -> None:
    async def scene() -> None:
        program = FakeProgram(RANK)
        view = await attached(ide := FakeIde(program), Mesh())
        del program.asked[:]
        commands = ["setBreakpoints", "evaluate", "evaluate", "next", "unknown"]
        for number, command in enumerate(commands, 2):
            context = {"expression": "x", "context": "repl" if number == 3 else "hover"}
            view.receive(request(number, command, **(context if command == "evaluate" else {})))
        # It has been sent before anything else happens here.
        assert program.asked == [(RANK.key, command) for command in commands]
        await until(lambda: ide.answer(6))
        view.gone()

    run(scene)


def test_lines_for_the_mesh_run_there_and_a_hint_names_the_others() -> None:
    def engine(_key: Key, asked: Message) -> Message:
        return failure(asked, "SyntaxError") if asked["command"] == "evaluate" else response(asked)

    async def scene() -> None:
        program = FakeProgram(RANK, engine=engine)
        view = await attached(ide := FakeIde(program), Mesh())
        lines: dict[int, str] = {2: "mesh where", 3: "mesh fail", 4: "where trainer"}
        for number, line in lines.items():
            view.receive(request(number, "evaluate", expression=line, context="repl"))
        await until(lambda: all(ide.answer(number) for number in lines))
        answers: list[dict[str, Any]] = [ide.answer(number) or {} for number in lines]
        assert answers[0]["body"] == {"result": "ran mesh where", "variablesReference": 0}
        assert answers[1]["message"].startswith("no answer within 10 s")
        assert (
            "SyntaxError" in answers[2]["message"]
            and "the command for the mesh is: mesh where" in answers[2]["message"]
        )
        view.gone()

    run(scene)


def test_a_goodbye_is_answered_when_the_rank_is_free() -> None:
    async def scene() -> None:
        program = FakeProgram(RANK)
        mesh = Mesh()
        view = await attached(ide := FakeIde(program), mesh)
        view.receive(request(2, "disconnect", terminateDebuggee=True))
        await until(lambda: (RANK.key, "disconnect") in program.asked)
        await settled()
        assert ide.answer(2) is None and not ide.left.is_set()
        program.tell("dap.closed", channel=1, why="")
        await ide.left.wait()
        assert (ide.answer(2) or {})["success"]
        view.gone()
        assert mesh.ended == [view] and program.closed == []

    run(scene)


def test_a_stop_of_a_rank_that_the_user_does_not_look_at_takes_no_focus() -> None:
    async def scene() -> None:
        program = FakeProgram(RANK)
        view = await attached(ide := FakeIde(program))
        for count, looked in enumerate((True, False, None), 1):
            view.link.looked = looked
            program.say(RANK.key, event("stopped", threadId=1, reason="step"))
            await until(lambda: len(ide.events("stopped")) == count)  # noqa: B023  # it is called in this round only
            assert view.link.looked is None
        assert [each.get("preserveFocusHint", False) for each in ide.events("stopped")] == [False, True, False]
        view.end()
        assert ide.left.is_set() and program.closed == [1]
        await asyncio.gather(*ide.tasks)
        view.gone()

    run(scene)
