"""How requests of an IDE are read, and what sessions do with those that they do not serve."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from meshrt.debug.dap.router.rank_threads import RankThreads
from meshrt.debug.dap.router.requests import passes_on, read
from meshrt.debug.dap.router.requests.looking import Evaluate, Source, StackTrace
from meshrt.debug.dap.router.requests.running import Continue
from meshrt.debug.dap.router.requests.setting import SetBreakpoints
from meshrt.debug.dap.router.requests.table import MeshSession
from meshrt.errors import UsageError
from tests.unit.debug.dap.router.fakes import request


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
        (request(1, "continue", threadId=[3]), "continue: its arguments are not those of DAP (Expected `int | null`"),
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
    with pytest.raises(UsageError, match=f"{command} is for the session of a rank; this one is the mesh"):
        asyncio.run(read(asked).at_mesh(cast(MeshSession, None), asked))


def test_a_session_of_threads_refuses_what_it_does_not_serve() -> None:
    asked = request(1, "restartFrame")
    with pytest.raises(UsageError, match="restartFrame is not for a session in which ranks are threads"):
        asyncio.run(read(asked).at_threads(cast(RankThreads, None), asked))
