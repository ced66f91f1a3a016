"""The session of the mesh: what its ranks have to say is said once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import cast

import pytest
from msgspec.structs import replace

from meshrt.debug.dap.router import told_once
from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.mesh_view import MOST_SESSIONS, MeshView
from meshrt.debug.dap.router.rank_view import RankView
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Message, failure, response
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, until

RANKS = [Rank("m1", rank, f"rank {rank}") for rank in range(2)]


def said(ide: FakeIde) -> list[str]:
    return [each["output"] for each in ide.events("output")]


def refuses(_key: Key, asked: Message) -> Message:
    return response(asked) if asked["command"] == "initialize" else failure(asked, "not now")


CONFIGURATION = Configuration.read({})


def mesh_of(ide: FakeIde) -> MeshView:
    return MeshView(cast(Peer, ide), CONFIGURATION, 1, lambda _key: 1, lambda _view: None)


async def sessions_of(program: FakeProgram, mesh: MeshView | None) -> list[FakeIde]:
    """An IDE's sessions with all ranks."""
    sessions = [FakeIde(program) for _ in RANKS]
    for session, rank in zip(sessions, RANKS, strict=True):
        RankView(cast(Peer, session), CONFIGURATION, rank, mesh).attach(request(1, "attach"), {})
        await asyncio.gather(*session.tasks)
    return sessions


def test_there_are_no_more_sessions_than_a_window_has_room_for() -> None:
    ranks = [Rank("m1", rank, f"rank {rank}") for rank in range(MOST_SESSIONS + 3)]

    async def attached(ide: FakeIde) -> MeshView:
        view = mesh_of(ide)
        view.attach(request(1, "attach"), {"supportsStartDebuggingRequest": True})
        await asyncio.gather(*ide.tasks)
        return view

    async def scenario() -> None:
        many = FakeIde(FakeProgram(*ranks[: MOST_SESSIONS + 1]))
        await attached(many)
        refusal = many.answer(1) or {}
        assert (
            not refusal["success"]
            and "65 ranks are too many: at most 64 ranks get a session each" in refusal["message"]
        )

        # Those that are born later are counted, too.
        ide = FakeIde(FakeProgram(*ranks[: MOST_SESSIONS - 1]))
        view = await attached(ide)
        view.receive(request(2, "configurationDone"))
        await asyncio.gather(*ide.tasks)
        for rank in ranks[MOST_SESSIONS - 1 : -1]:
            view.born(rank)
        assert [each["name"] for each in ide.announced] == [rank.name for rank in ranks[:MOST_SESSIONS]]
        (told,) = (text for text in said(ide) if "no session for" in text)
        assert told.startswith(
            "meshrt: no session for rank 64 and for later ranks: at most 64 ranks get a session each"
        )
        # One that ends, or that the IDE does not open, makes room.
        ended = RankView(cast(Peer, FakeIde(ide.program)), view.configuration, ranks[0], view)
        view.entered(ended)
        view.left(ended)
        view.born(ranks[-1])
        assert ide.announced[-1]["name"] == ranks[-1].name
        ide.refuse(ranks[-1].name, "no")
        assert said(ide)[-1] == f"meshrt: the IDE opened no session for {ranks[-1].name}: no\n"
        view.born(replace(ranks[-2], life=1))
        assert ide.announced[-1]["name"] == ranks[-2].name

    run(scenario)


def test_what_an_ide_costs_is_said_once_for_all_ranks() -> None:
    async def scenario() -> None:
        program = FakeProgram(*RANKS, price="calls are slow", engine=refuses)
        mesh = mesh_of(ide := FakeIde(program))
        for alone in (False, True):
            sessions = await sessions_of(program, None if alone else mesh)
            # A session that the IDE has started by itself has no mesh to say it.
            assert [said(session) for session in sessions] == [["meshrt: calls are slow\n"] if alone else []] * 2
        assert said(ide) == ["meshrt: calls are slow\n"]
        mesh.gone()

    run(scenario)


def test_why_ranks_cannot_be_attached_to_is_said_once() -> None:
    async def scenario() -> None:
        program = FakeProgram(*RANKS, opens=False)
        mesh = mesh_of(ide := FakeIde(program))
        mesh.attach(request(1, "attach"), {"supportsStartDebuggingRequest": True})
        await asyncio.gather(*ide.tasks)
        mesh.receive(request(2, "configurationDone"))
        await asyncio.gather(*ide.tasks)
        greeting = said(ide)
        sessions = [FakeIde(program) for _ in range(3)]
        for number, why in enumerate(("no debugpy", "no debugpy", "another reason"), 1):
            session = sessions[number - 1]
            RankView(cast(Peer, session), CONFIGURATION, RANKS[number % 2], mesh).attach(request(1, "attach"), {})
            await until(partial(program.opened.__contains__, number))
            program.tell("dap.closed", channel=number, why=why)
            await asyncio.gather(*session.tasks)
            assert session.left.is_set() and not said(session)
        # The IDE shows a dialog for each attach that fails.
        assert [(session.answer(1) or {}).get("message") for session in sessions] == [
            "no debugpy",
            None,
            "another reason",
        ]
        assert [(session.answer(1) or {})["success"] for session in sessions] == [False, True, False]
        # What the IDE makes of that is no news, but for what the rank has not refused.
        for _ in range(2):
            ide.refuse("rank 1", "Failed to start debugging")
        await until(lambda: len(said(ide)) == len(greeting) + 2)
        last = [
            "meshrt: the IDE opened no session for rank 1: Failed to start debugging\n",
            "meshrt: rank 0: no debugpy\n",
        ]
        assert said(ide) == [*greeting, *last]
        mesh.gone()

    run(scenario)


def test_what_raises_in_breakpoints_is_said_once_for_all_ranks_and_then_how_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(told_once, "_AGAIN", 0.01)
    row = {
        "what": "condition", "file": "/src/train.py", "line": 41, "expression": "lss > 1", "error": "NameError",
        "text": "no lss", "times": 1,
    }  # fmt: skip

    async def scenario() -> None:
        program = FakeProgram(*RANKS)
        mesh = mesh_of(ide := FakeIde(program))
        sessions = await sessions_of(program, mesh)
        for channel in (1, 2):
            program.tell("dap.raised", channel=channel, rows=[row])
        what = "the condition of the breakpoint at train.py:41"
        first = f"meshrt: ranks 0-1: {what} raises an exception and counts as false (lss > 1): NameError: no lss\n"
        await until(lambda: ide.events("output"))
        assert ide.events("output") == [{"category": "important", "output": first}]
        for channel in (1, 2):
            program.tell("dap.raised", channel=channel, rows=[{**row, "times": 500}])
        await until(lambda: len(ide.events("output")) == 2)
        again = f"meshrt: ranks 0-1: {what} has raised NameError 1002 times\n"
        assert ide.events("output")[1] == {"category": "console", "output": again}
        assert not any(map(said, sessions))
        # A session that the IDE has started by itself has no mesh to say it.
        sessions = await sessions_of(program, None)
        program.tell("dap.raised", channel=3, rows=[{**row, "what": "log", "expression": ""}])
        await until(lambda: said(sessions[0]))
        text = "meshrt: rank 0: the log point at train.py:41 prints nothing because it raises an exception"
        text += ": NameError: no lss\n"
        assert said(sessions[0]) == [text] and len(said(ide)) == 2
        mesh.gone()

    run(scenario)
