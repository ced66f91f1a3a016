"""What any client may send to the broker: wrong words are refused, and a client that does not read is cut off."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshrt import MeshError, proc_mesh
from meshrt.mesh.program import start_root
from meshrt.transport import tools
from meshrt.wire.control import control_frame
from meshrt.wire.tree import Request
from tests.debug.actors import Debugee
from tests.debug.harness import person
from tests.debug.working import Worker
from tests.support.untyped import asked
from tests.support.waiting import wait_until

WAIT = 20
#: More than a client may leave unread, in requests of some 100 kB each.
MOST_REQUESTS = 1000

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.sampled_from(["debugee", "ranks(0)", "nobody", "1", "-1", "on", "p", "", "actors.py:1", "\x00", "x" * 3000]),
    st.text(max_size=12),
    st.binary(max_size=5),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
)
KEYS = (
    *("actor", "ranks", "rank", "line", "expression", "command", "state", "verbose", "steal", "job", "ids", "mode"),
    *("place", "condition", "once", "lines", "text", "typed", "person", "thread", "nothing"),
)
#: A wait of a day is what it is; that it comes to an end is not asked here.
SECONDS = st.one_of(st.just(0), st.none(), st.text(max_size=5), st.lists(st.integers(0, 9), max_size=2), st.just(-1.5))
BODIES = st.one_of(
    st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6),
    st.fixed_dictionaries({}, optional={"actor": st.just("debugee"), "ranks": VALUES, "seconds": SECONDS}),
    st.none(),  # anything else than a dict or None is no message, and ends the connection
)


def ask(client: tools.ToolConnection, operation: str, body: Any) -> Any:
    """Send a body that no class of operations allows."""
    answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()
    client._requests.ask(operation, body, lambda answer, error: answers.put((answer, error)))
    answer, error = answers.get(timeout=WAIT)
    if error is not None:
        raise error
    return answer


@pytest.mark.slow
def test_bodies_of_wrong_types_are_refused() -> None:
    mesh = proc_mesh(gpus=2).spawn("debugee", Debugee).get(WAIT)
    pids = mesh.pid.call().get(WAIT).values()
    mesh.loop.call(10**6)
    program = tools.own_program()
    assert program is not None
    with person() as me, contextlib.closing(tools.connect(program, lambda *_: None, lambda: None)) as client:
        me.wait("debugee")
        operations = sorted(name for name in start_root().services._tool_operations if name.startswith("debug."))
        assert len(operations) > 15
        outcomes = {"answered": 0, "refused": 0}

        @settings(max_examples=400)
        @given(st.sampled_from(operations), BODIES)
        def send(operation: str, body: Any) -> None:
            try:
                answer = ask(client, operation, body)
            except MeshError as error:
                outcomes["refused"] += 1
                assert str(error)  # noqa: PT017 - either way is right
            else:
                outcomes["answered"] += 1
                assert isinstance(answer, dict)
            assert not client.closed
            assert me.client.ask(asked("inspect.status"))["meshes"][0]["alive"] == 2

        send()
        assert min(outcomes.values()) > 50, outcomes
        client.close()
        me("postmortem default")
        me("clear all")
        me.wait("debugee")
        assert me("p debugee ranks(:) 20 + 1") == "[0-1] 21\n"
        assert me("cast debugee ranks(:) p n > 1") == "[0-1] True\n"
        rows = me.client.ask(asked("inspect.list", state="all"))["rows"]
        assert [row["pid"] for row in rows] == pids


@pytest.mark.row("D4")
def test_a_terminal_that_does_not_read_is_cut_off() -> None:
    procs = proc_mesh(gpus=2)
    mesh, worker = procs.spawn("debugee", Debugee).get(WAIT), procs.spawn("worker", Worker).get(WAIT)
    worker.say.call([f"{number} {'x' * 900}" for number in range(60)]).get(WAIT)
    result = mesh.loop.call(2)
    program = tools.own_program()
    assert program is not None
    stuck, ended = threading.Event(), threading.Event()
    with person() as me:

        def hold(*_: Any) -> None:
            stuck.wait(WAIT)

        lazy = tools.connect(program, hold, ended.set)
        lazy.ask(asked("debug.hello", person=True))
        me.wait("debugee")
        assert "terminals: processes" in me("status")
        wait_until(lambda: me("logs -n 100 worker").count("x" * 900) == 120, WAIT)
        frame = control_frame(Request(77, "debug.logs", {"actor": "worker", "lines": 100}))
        requests = 0
        with pytest.raises(ConnectionError):  # noqa: PT012 - which of them is the first that fails is not known
            for requests in range(MOST_REQUESTS):
                lazy._sock.sendall(frame)
                if requests % 20 == 0:
                    assert me("list").count("| debugee ") == 2  # the others notice nothing
        assert requests > 100  # and not at the first moment
        wait_until(lambda: "terminals: processes" not in me("status"), WAIT)
        me("continue")
        me.wait("debugee")
        me("continue")
        stuck.set()
        assert ended.wait(WAIT)
        lazy.close()
    assert result.get(WAIT).values() == [2, 2]
