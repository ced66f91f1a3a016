"""Requests about what is stopped: they go to the rank that is meant, in the numbers of its engine."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.mesh_view import MeshView
from meshrt.debug.dap.router.rank_view import RankView
from meshrt.debug.dap.router.ranks import Key, Rank
from meshrt.debug.dap.router.threads_view import ThreadsView
from meshrt.debug.dap.router.view import Peer, View
from meshrt.debug.dap.wire import Message, response
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, until

RANKS = [Rank("m1", rank, f"rank {rank}") for rank in range(2)]
BODIES: dict[str, Any] = {
    "threads": {"threads": [{"id": 1, "name": "MainThread"}]},
    "stackTrace": {"stackFrames": [{"id": 7, "name": "step", "line": 3, "source": {"sourceReference": 4}}]},
    "scopes": {"scopes": [{"name": "Locals", "variablesReference": 8}]},
    "variables": {"variables": [{"name": "x", "value": "1", "variablesReference": 0}]},
    "source": {"content": "its byte code"},
    "evaluate": {"result": "1", "variablesReference": 0},
}


class Engines:
    """Note what they are asked, with its arguments."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, dict[str, Any]]] = []

    def __call__(self, key: Key, asked: Message) -> Message:
        self.asked.append((key[1], asked["command"], asked.get("arguments") or {}))
        return response(asked, BODIES.get(asked["command"], {}))


async def answered(ide: FakeIde, view: View, number: int, command: str, **arguments: Any) -> Message:
    """Put a request; returns its answer."""
    view.receive(request(number, command, **arguments))
    await until(lambda: ide.answer(number))
    return ide.answer(number) or {}


async def threads_of(ide: FakeIde, **more: Any) -> ThreadsView:
    """A session in which the ranks are threads."""
    view = ThreadsView(cast(Peer, ide), Configuration.read({"meshView": "threads", **more}), 1, lambda _view: None)
    view.attach(request(1, "attach"), {})
    await until(lambda: ide.answer(1))
    return view


def test_numbers_of_the_session_are_those_of_one_engine() -> None:
    async def scene() -> None:
        engines = Engines()
        ide = FakeIde(FakeProgram(*RANKS, engine=engines))
        view = await threads_of(ide)
        listed = (await answered(ide, view, 2, "threads"))["body"]["threads"]
        thread = next(each["id"] for each in listed if each["name"] == "rank 1")
        (frame,) = (await answered(ide, view, 3, "stackTrace", threadId=thread, levels=20))["body"]["stackFrames"]
        assert engines.asked[-1] == (1, "stackTrace", {"threadId": 1, "levels": 20}) and frame["id"] != 7
        (scope,) = (await answered(ide, view, 4, "scopes", frameId=frame["id"]))["body"]["scopes"]
        assert engines.asked[-1] == (1, "scopes", {"frameId": 7}) and scope["variablesReference"] != 8
        await answered(ide, view, 5, "variables", variablesReference=scope["variablesReference"], count=5)
        assert engines.asked[-1] == (1, "variables", {"variablesReference": 8, "count": 5})
        asked = {"expression": "x", "frameId": frame["id"]}
        assert (await answered(ide, view, 6, "evaluate", **asked, context="repl"))["body"]["result"] == "1"
        assert engines.asked[-1] == (1, "evaluate", {"expression": "x", "frameId": 7, "context": "repl"})
        # A source of an engine goes by its number there.
        reference = {"sourceReference": frame["source"]["sourceReference"]}
        said = await answered(ide, view, 7, "source", source=reference, **reference)
        assert said["body"] == {"content": "its byte code"}
        assert engines.asked[-1] == (1, "source", {"source": {"sourceReference": 4}, "sourceReference": 4})
        # So does what is asked of a file, of any rank.
        assert (await answered(ide, view, 8, "gotoTargets", source={"path": "/a.py"}, line=3))["success"]
        assert engines.asked[-1] == (0, "gotoTargets", {"source": {"path": "/a.py"}, "line": 3})
        assert (await answered(ide, view, 9, "modules"))["body"] == {"modules": [], "totalModules": 0}
        view.gone()

    run(scene)


def test_numbers_that_are_not_known_are_refused() -> None:
    async def scene() -> None:
        ide = FakeIde(FakeProgram(*RANKS))
        view = await threads_of(ide)
        refused: list[tuple[str, dict[str, Any], str]] = [
            ("scopes", {"frameId": 99}, "this belongs to an earlier stop"),
            ("scopes", {"frameId": None}, "no rank is chosen"),
            ("variables", {}, "no rank is chosen"),
            ("stackTrace", {"threadId": 99}, "thread 99 no longer exists"),
            ("scopes", {"frameId": []}, "scopes: the arguments are not valid DAP"),
        ]
        for number, (command, arguments, why) in enumerate(refused, 2):
            said = await answered(ide, view, number, command, **arguments)
            assert not said["success"] and why in said["message"]
        view.gone()

    run(scene)


def test_the_session_of_a_rank_asks_its_engine() -> None:
    async def scene() -> None:
        engines = Engines()
        ide = FakeIde(FakeProgram(*RANKS, engine=engines))
        view = RankView(cast(Peer, ide), Configuration.read({}), RANKS[0], None)
        view.attach(request(1, "attach"), {})
        await until(lambda: ide.answer(1))
        assert (await answered(ide, view, 2, "source", sourceReference=4))["body"] == {"content": "its byte code"}
        assert (await answered(ide, view, 3, "evaluate", expression="mesh where", context="repl"))["success"]
        assert not (await answered(ide, view, 4, "terminate"))["success"]
        assert [command for _, command, _ in engines.asked][-2:] == ["source", "evaluate"]
        view.gone()
        await asyncio.gather(*ide.tasks)

    run(scene)


def test_the_session_of_the_mesh_evaluates_lines_of_its_console_only() -> None:
    async def scene() -> None:
        ide = FakeIde(FakeProgram(*RANKS))
        view = MeshView(cast(Peer, ide), Configuration.read({}), 1, lambda _key: 1, lambda _view: None)
        for number, arguments in enumerate(({"expression": "x", "context": "hover"}, {"expression": " "}), 1):
            said = await answered(ide, view, number, "evaluate", **arguments)
            assert "choose the session of a rank, or use the debug console" in said["message"]
        assert (await answered(ide, view, 3, "stackTrace", threadId=1))["body"] == {"stackFrames": [], "totalFrames": 0}
        view.gone()

    run(scene)
