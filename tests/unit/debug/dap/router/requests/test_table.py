"""How requests of an IDE are read, and what sessions do with those that they do not serve."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from meshrt.debug.dap.router.configuration import Configuration
from meshrt.debug.dap.router.mesh_view import MeshView
from meshrt.debug.dap.router.rank_threads import RankThreads
from meshrt.debug.dap.router.ranks import Rank
from meshrt.debug.dap.router.requests import Request, passes_on, read, table
from meshrt.debug.dap.router.requests.looking import Evaluate, Source, StackTrace
from meshrt.debug.dap.router.requests.running import Continue
from meshrt.debug.dap.router.requests.setting import SetBreakpoints
from meshrt.debug.dap.router.requests.table import MeshSession
from meshrt.debug.dap.router.threads_view import ThreadsView
from meshrt.debug.dap.router.view import Answer, Peer
from meshrt.debug.dap.wire import Message
from meshrt.errors import UsageError
from meshrt.inspect.operations import KnownNames, Names
from tests.unit.debug.dap.router.fakes import FakeIde, FakeProgram, request, run, until


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (request(1, "continue", threadId=3, singleThread=True, unknown=[1]), Continue(3, True)),
        (request(1, "continue", threadId="3", singleThread=None), Continue(3)),
        ({"type": "request", "seq": 1, "command": "continue", "arguments": None}, Continue()),
        (request(1, "stackTrace"), StackTrace()),
        (request(1, "evaluate", expression="x", frameId=None, context="repl"), Evaluate(None, "x", "repl")),
    ],
)
def test_arguments_are_read_as_clients_write_them(asked: dict[str, Any], expected: object) -> None:
    assert read(asked) == expected


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (request(1, "continue", threadId=[3]), "continue: the arguments are not valid DAP (Expected `int | null`"),
        (request(1, "evaluate", expression={}), "`$.expression`"),
        (request(1, "setBreakpoints", breakpoints=[{"line": "x"}]), "`$.breakpoints[0].line`"),
        (request(1, "setBreakpoints", breakpoints=3), "`$.breakpoints`"),
    ],
)
def test_arguments_of_other_types_are_refused(asked: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(asked)
    assert problem in str(caught.value)


def test_nested_arguments() -> None:
    asked = read(request(1, "setBreakpoints", source={"path": "/a.py"}, breakpoints=[{"line": 3, "condition": "x"}]))
    assert isinstance(asked, SetBreakpoints)
    assert asked.source.path == "/a.py" and asked.breakpoints is not None and asked.breakpoints[0].line == 3
    numbers = [read(request(1, "source", source=inner, sourceReference=4)) for inner in ({"sourceReference": 5}, None)]
    assert [cast(Source, each).number for each in numbers] == [5, 4]


def test_the_session_of_a_rank_passes_on_what_it_does_not_read() -> None:
    passed = {command: passes_on(request(1, command)) for command in ("next", "setBreakpoints", "no such request")}
    assert set(passed.values()) == {True}
    assert not any(passes_on(request(1, command)) for command in ("disconnect", "terminate", "evaluate", "source"))


@pytest.mark.parametrize("command", ["goto", "no such request"])
def test_other_sessions_refuse_what_they_do_not_serve(command: str) -> None:
    asked = request(1, command)
    with pytest.raises(
        UsageError, match=f"{command} works only in the session of a rank; this is the session of the mesh"
    ):
        asyncio.run(read(asked).at_mesh(cast(MeshSession, None), asked))


def test_a_session_of_threads_refuses_what_it_does_not_serve() -> None:
    asked = request(1, "restartFrame")
    with pytest.raises(UsageError, match="restartFrame does not work in a session in which ranks are threads"):
        asyncio.run(read(asked).at_threads(cast(RankThreads, None), asked))


def test_what_requests_have_in_common_is_no_request() -> None:
    assert type(read(request(1, "_OfThread"))) is type(read(request(1, "no such request"))) is Request


class _Actors(Request, frozen=True, tag="test/actors"):
    """A request that is answered with what the program tells."""

    async def at_mesh(self, mesh: MeshSession, message: Message) -> Answer:
        return {"actors": (await mesh.program.ask(Names())).actors}

    async def at_threads(self, ranks: RankThreads, message: Message) -> Answer:
        return {"actors": (await ranks.program.ask(Names())).actors}


def test_a_request_can_ask_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {**table._table(), "test/actors": _Actors}
    monkeypatch.setattr(table, "_table", lambda: known)

    async def scene() -> None:
        program = FakeProgram(Rank("m1", 0, "rank 0"))
        program.answers[Names.name()] = KnownNames(["trainer"], [], {})
        ide = FakeIde(program)
        peer, plain = cast(Peer, ide), Configuration.read({})
        for number, view in enumerate(
            (
                MeshView(peer, plain, 1, lambda _key: 1, lambda _view: None),
                ThreadsView(peer, plain, 2, lambda _view: None),
            )
        ):
            view.receive(request(number, "test/actors"))
            await until(lambda number=number: ide.answer(number))  # type: ignore[misc]
            assert (ide.answer(number) or {})["body"] == {"actors": ["trainer"]}
            view.gone()

    run(scene)
