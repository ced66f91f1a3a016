"""Operations of the root, as terminals and ranks ask for them: answers, refusals with their class, and mistakes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from meshrt import MeshError, UsageError, proc_mesh
from meshrt.errors import AuthenticationError, RankPlace, SelectionError, SupervisionError
from meshrt.hooks.operations import Data, Operation
from meshrt.hooks.services import ToolClient
from meshrt.mesh.program import start_root
from meshrt.selection import parse
from meshrt.transport.process import current_runtime
from meshrt.transport.tools import TOKEN, ToolConnection, connect, own_program
from tests.dap import attacker
from tests.support.actors import Echo
from tests.support.control import raw_frame
from tests.support.others import needs_root
from tests.support.programs import environment
from tests.support.untyped import asked
from tests.support.waiting import wait_until


class Served(Data, frozen=True):
    value: str


class Serve(Operation[Served], frozen=True, tag="test.serve"):
    how: str


def serve(name: str) -> Served:
    """What the operations of these tests do."""
    match name:
        case "usage":
            raise UsageError("no such thing")
        case "selection":
            parse("ranks(3:")
        case "gone":
            raise SupervisionError(RankPlace("m", "a", 3))
        case "mistake":
            raise KeyError("missing")
    return Served(name)


async def serve_tool(client: ToolClient, asked: Serve) -> Served:
    return serve(asked.how)


@pytest.fixture
def terminal() -> Iterator[ToolConnection]:
    root = start_root()
    root.services.serve_terminals(Serve, serve_tool)
    root.services.serve_ranks(Serve, lambda mesh_id, rank, asked: serve(asked.how))
    root.loop.begin()
    wait_until(own_program)
    program = own_program()
    assert program is not None
    made = connect(program, lambda event, body: None, lambda: None)
    yield made
    made.close()


def refusal(terminal: ToolConnection, name: str) -> MeshError:
    with pytest.raises(MeshError) as caught:
        terminal.ask(asked("test.serve", how=name))
    return caught.value


def test_a_refusal_has_the_class_that_it_had_in_the_program(
    terminal: ToolConnection, caplog: pytest.LogCaptureFixture
) -> None:
    assert terminal.ask(asked("test.serve", how="fine")) == {"value": "fine"}
    error = refusal(terminal, "usage")
    assert type(error) is UsageError and str(error) == "no such thing"
    error = refusal(terminal, "selection")
    with pytest.raises(SelectionError) as local:
        parse("ranks(3:")
    assert type(error) is SelectionError and str(error) == str(local.value)
    error = refusal(terminal, "gone")
    assert type(error) is MeshError and str(error) == "a rank 3 has ended"
    assert not caplog.records


def test_a_mistake_in_an_operation_is_told_and_logged(
    terminal: ToolConnection, caplog: pytest.LogCaptureFixture
) -> None:
    error = refusal(terminal, "mistake")
    assert type(error) is MeshError and str(error) == "KeyError: 'missing'"
    (record,) = caplog.records
    assert "test.serve" in record.message and record.exc_info is not None
    assert record.exc_info[0] is KeyError
    assert terminal.ask(asked("test.serve", how="fine")) == {"value": "fine"}


@pytest.mark.usefixtures("terminal")
def test_a_rank_is_told_of_a_mistake_too(caplog: pytest.LogCaptureFixture) -> None:
    def ask(name: str) -> str:
        try:
            rank: Any = current_runtime().tree
            rank.ask(asked("test.serve", how=name), 20)
        except MeshError as error:
            return str(error)
        return "served"

    echo = proc_mesh(n=1).spawn("echo", Echo)
    answers = [echo.apply.call_one(ask, name).get(20) for name in ("fine", "usage")]
    assert answers == ["served", "no such thing"] and not caplog.records
    assert echo.apply.call_one(ask, "mistake").get(20) == "KeyError: 'missing'"
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError]


@pytest.mark.parametrize(
    "message",
    [
        {"t": "ok", "id": 1},
        {"t": "op", "id": "1", "op": "test.serve", "body": {}},
        {"t": "op", "id": 1, "op": "test.serve", "body": [1]},
        {"t": "op", "id": 1, "op": ["test.serve"], "body": {}},
    ],
    ids=["no request", "no number", "no map", "no name"],
)
def test_a_bad_request_costs_its_terminal_and_no_other(terminal: ToolConnection, message: dict[str, Any]) -> None:
    program = own_program()
    assert program is not None
    closed = threading.Event()
    other = connect(program, lambda event, body: None, closed.set)
    other._sock.sendall(raw_frame(message))
    assert closed.wait(20)
    assert terminal.ask(asked("test.serve", how="well")) == {"value": "well"}


@pytest.mark.row("D5")
def test_a_program_of_another_user_is_told_nothing(terminal: ToolConnection) -> None:
    needs_root()
    program = own_program()
    assert program is not None
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o777)
        (directory / TOKEN).write_text("00" * 32)
        command = [sys.executable, attacker.__file__, "squat", str(directory / "tools")]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment(), cwd="/") as squatter:
            assert squatter.stdout is not None and squatter.stdout.readline() == "listens\n"
            with pytest.raises(AuthenticationError, match=f"{name} is served by another user"):
                connect(replace(program, directory=directory), lambda event, body: None, lambda: None)
            squatter.communicate(timeout=20)
