"""What tools that only look ask of a program: none of it loads the debugger there."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from meshrt import Actor, Channel, Port, endpoint, proc_mesh
from meshrt.inspect.operations import ListRanks, RankRow, ReadStatus, Where
from meshrt.inspect.text import render_stacks
from meshrt.inspect.waittext import unread_lines, wait_lines
from meshrt.memory.operations import LookAtMemory, WireRank
from meshrt.mesh.program import start_root
from meshrt.program.words import silence
from meshrt.top.operations import Look, RankLook
from meshrt.transport import tools
from tests.support.pausing import paused
from tests.support.programs import environment, run_python
from tests.support.untyped import asked
from tests.support.waiting import wait_until

WAIT = 30


class Idle(Actor):
    """Does nothing."""

    @endpoint
    def step(self) -> None: ...

    @endpoint
    def fail(self) -> None:
        raise ValueError("no data")

    @endpoint(explicit_response_port=True)
    def answer_later(self, port: Port[None]) -> None:
        self.port = port

    @endpoint
    def answer(self) -> None:
        self.port.send(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "body", "key"),
    [
        ("inspect.status", {"hosts": True}, "groups"),  # meshrt ps
        ("inspect.list", {"state": "all", "ranks": "running", "memory": True, "hosts": True}, "rows"),
        ("inspect.where", {"ranks": "running"}, "meshes"),  # a rank in meshrt top
        ("inspect.printing", {"ranks": "running"}, "printing"),  # meshrt logs
        ("inspect.names", {}, "actors"),  # Tab
        ("top.look", {"ranks": "running"}, "ranks"),
        ("memory.look", {"ranks": "running", "variables": True, "frames": True}, "ranks"),
        ("timeline.begin", {"ranks": "running"}, "recording"),
    ],
)
def test_who_only_looks_does_not_load_the_debugger(operation: str, body: dict[str, Any], key: str) -> None:
    idle = proc_mesh(n=2).spawn("idle", Idle)
    idle.step.call().get(WAIT)
    program = tools.own_program()
    assert program is not None
    connection = tools.connect(program)
    try:
        assert connection.ask(asked(operation, **body), WAIT)[key]
    finally:
        connection.close()
    assert not [name for name in start_root().services._tool_operations if name.startswith("debug.")]


#: A program that says which modules of the debugger it has loaded, each time a line comes.
LOOKED_AT = """
import sys
from meshrt import Actor, proc_mesh

proc_mesh(n=2).spawn("idle", Actor).get()
print("up", flush=True)
for line in sys.stdin:
    print(sorted(name for name in sys.modules if name.startswith("meshrt.debug.")), flush=True)
"""


@pytest.mark.slow
def test_a_command_that_only_looks_does_not_load_the_debugger() -> None:
    arguments = [sys.executable, "-c", LOOKED_AT]
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "up\n"

        def loaded_by(*words: str, shown: str) -> list[str]:
            done = run_python("-m", "meshrt", *words)
            assert done.returncode == 0
            assert shown in done.stdout
            print("look", file=program.stdin, flush=True)
            assert program.stdout is not None
            loaded: list[str] = ast.literal_eval(program.stdout.readline())
            return loaded

        run = ("-p", str(program.pid))
        assert not loaded_by("where", *run, shown="2 ranks of")
        assert not loaded_by("list", "all", *run, shown="Actor Name")
        assert not loaded_by("status", *run, shown="nothing is stopped")
        assert not loaded_by("names", *run, shown="idle")
        assert not loaded_by("completion", "bash", "where", *run, "", shown="idle")
        assert not loaded_by("debug", "-c", "where", "-c", "status", str(program.pid), shown="2 ranks of")
        assert "meshrt.debug.broker.broker" in loaded_by("p", *run, "idle", "1 + 1", shown="2")


def test_what_the_script_waits_for_and_has_not_read_is_said() -> None:
    idle = proc_mesh(n=2, name="train").spawn("idle", Idle)
    idle.step.call().get(WAIT)
    program = tools.own_program()
    assert program is not None
    port, receiver = Channel[int].open()
    waiting = threading.Thread(target=lambda: receiver.recv().get(WAIT))
    call = idle.slice(n=1).fail.call_one()
    connection = tools.connect(program)
    try:
        waiting.start()
        wait_until(lambda: connection.ask(ReadStatus(), WAIT).unread and connection.ask(ReadStatus(), WAIT).waits, WAIT)
        for told in connection.ask(ReadStatus(), WAIT), connection.ask(Where(), WAIT):
            assert unread_lines(told) == ["unread error: idle.fail() raised on train rank 1: ValueError: no data"]
            (line,) = wait_lines(told)
            assert re.match(rf"the script \({re.escape(__file__)}:\d+\) waits for a message to a port", line)
        port.send(1)
        waiting.join(WAIT)
        with pytest.raises(ValueError, match="no data"):
            call.get(WAIT)
        told = connection.ask(ReadStatus(), WAIT)
        assert (told.unread, told.waits) == ([], [])
    finally:
        connection.close()


def test_a_rank_that_owes_an_answer_is_seen_to_owe_it() -> None:
    idle = proc_mesh(n=2).spawn("idle", Idle)
    idle.slice(n=1).answer_later.broadcast()  # nobody is owed an answer to that
    idle.step.call().get(WAIT)
    program = tools.own_program()
    assert program is not None
    call = idle.slice(n=0).answer_later.call_one()
    waiting = threading.Thread(target=lambda: call.get(WAIT))
    connection = tools.connect(program)
    try:
        waiting.start()
        owes = "has not sent the answer of answer_later()"
        line = f"idle.answer_later() of rank 0, waiting for messages: it {owes}"  # once the call has come there
        wait_until(lambda: line in "".join(wait_lines(connection.ask(Where(), WAIT))[:1]), WAIT)
        shown = render_stacks(connection.ask(Where(), WAIT))
        assert shown.count(f"waits for messages, {owes}") == shown.count(owes) - 1 == 1
        idle.slice(n=0).answer.call_one().get(WAIT)
        waiting.join(WAIT)
        assert owes not in render_stacks(connection.ask(Where(), WAIT))
    finally:
        connection.close()


def test_a_stopped_process_has_one_word_in_every_tool() -> None:
    idle = proc_mesh(n=2).spawn("idle", Idle)
    idle.step.call().get(WAIT)
    (mesh,) = start_root().services.meshes()
    program = tools.own_program()
    assert program is not None
    connection = tools.connect(program)
    try:

        def words(rows: Sequence[RankLook] | Sequence[WireRank] | Sequence[RankRow]) -> list[tuple[str, str]]:
            return [(row.state, row.note or "") for row in rows]

        def seen() -> list[list[tuple[str, str]]]:
            top, memory = connection.ask(Look(), WAIT), connection.ask(LookAtMemory(), WAIT)
            return [words(top.ranks), words(memory.ranks)]

        def listed() -> list[tuple[str, str]]:
            return words(connection.ask(ListRanks(state="all"), WAIT).rows)

        wait_until(lambda: listed() == [("idle", "")] * 2, WAIT)
        with paused(mesh.pids[1]):
            # The kernel tells of it before any question times out.
            stopped = [("idle", ""), ("not-answering", silence("stopped"))]
            assert seen() == [stopped, stopped]
            # Its agent reports it when it has asked the rank.
            wait_until(lambda: listed() == stopped, WAIT)
            assert seen() == [stopped, stopped]
    finally:
        connection.close()


def test_where_the_script_is_while_no_rank_has_anything_to_do() -> None:
    idle = proc_mesh(n=2).spawn("idle", Idle).get(WAIT)
    program = tools.own_program()
    assert program is not None
    connection = tools.connect(program)
    try:
        wait_until(lambda: connection.ask(Where(), WAIT).script, WAIT, "all ranks are idle")
        line = render_stacks(connection.ask(Where(), WAIT)).splitlines()[-1]
        assert re.fullmatch(r"all ranks are idle: the script is at \S+\.py:\d+, in \w+\(\)", line), line
    finally:
        connection.close()
    assert idle.size() == 2
