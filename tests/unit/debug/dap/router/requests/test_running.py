"""Requests that resume, pause and leave: which ranks they go to."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.mesh_view import MeshView
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.threads_view import ThreadsView
from meshrt.debug.dap.router.view import Peer
from meshrt.debug.dap.wire import Message, event, response
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, until

RANKS = [Rank("m1", rank, f"rank {rank}") for rank in range(3)]


@pytest.mark.parametrize(
    ("step", "command", "arguments", "expected"),
    [
        ("one", "next", {}, [1]),
        ("all", "next", {"granularity": "line"}, [0, 1]),
        ("all", "stepIn", {"singleThread": True}, [1]),
        ("one", "continue", {}, [0, 1]),
        ("all", "continue", {"singleThread": True}, [1]),
        ("all", "pause", {}, [1]),
    ],
)
def test_one_rank_or_all_that_are_stopped(
    step: str, command: str, arguments: dict[str, Any], expected: list[int]
) -> None:
    asked: list[tuple[int, dict[str, Any]]] = []

    def engine(key: Key, message: Message) -> Message:
        if message["command"] == command:
            asked.append((key[1], message["arguments"]))
        return response(message)

    async def scene() -> None:
        ide = FakeIde(program := FakeProgram(*RANKS, engine=engine))
        configuration = Configuration.read({"meshView": "threads", "meshStep": step})
        view = ThreadsView(cast(Peer, ide), configuration, 1, lambda _view: None)
        view.attach(request(1, "attach"), {})
        await until(lambda: ide.answer(1))
        for rank in RANKS[:2]:
            program.say(rank.key, event("stopped", threadId=1, reason="breakpoint"))
        await until(lambda: len(ide.events("stopped")) == 2)
        chosen = ide.events("stopped")[1]["threadId"]
        view.receive(request(2, command, threadId=chosen, **arguments))
        await until(lambda: ide.answer(2))
        assert (ide.answer(2) or {})["success"] and sorted(rank for rank, _ in asked) == expected
        assert {each["threadId"] for _, each in asked} == {1}
        if command == "continue":
            assert (ide.answer(2) or {})["body"] == {"allThreadsContinued": not arguments}
        view.gone()

    run(scene)


def test_the_session_of_the_mesh_counts_its_ranks_and_leaves_them() -> None:
    async def scene() -> None:
        ide = FakeIde(FakeProgram(*RANKS))
        view = MeshView(cast(Peer, ide), Configuration.read({}), 1, lambda _key: 1, lambda _view: None)
        view.receive(request(1, "threads"))
        view.receive(request(2, "terminate"))
        view.receive(request(3, "disconnect"))
        await asyncio.gather(*ide.tasks)
        assert (ide.answer(1) or {})["body"] == {"threads": [{"id": 1, "name": "mesh: 0 ranks, 0 stopped"}]}
        assert "terminate works only in the session of a rank" in (ide.answer(2) or {})["message"]
        assert (ide.answer(3) or {})["success"] and ide.left.is_set()
        view.gone()

    run(scene)
