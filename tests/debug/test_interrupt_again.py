"""Ranks that step, or are at work on a line, are interrupted once more; and what the program finds afterwards."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from typing import Any

import pytest

from meshrt import Actor, ActorError, endpoint, proc_mesh
from tests.debug.harness import Person, attached, person
from tests.support.untyped import asked
from tests.support.waiting import holds_within, wait_until

WAIT = 20
LATER = sys.version_info >= (3, 12)
#: As `where` shows it; the line that calls it has its name, too.
IN_SPIN = "_spin  debug/"


class Again(Actor):
    """Waits in calls that a person steps over; ``self.pair[1].send(b"x")`` resumes it."""

    def __init__(self) -> None:
        self.pair = socket.socketpair()
        self.go = True
        self.turns = 0

    @endpoint
    def receive(self) -> int:
        begun = 1
        breakpoint()
        got = self.pair[0].recv(1)
        return len(got) + begun

    @endpoint
    def inner(self) -> int:
        breakpoint()
        got = self._inner()
        return got

    def _inner(self) -> int:
        secret = 5
        self.pair[0].recv(1)
        return secret

    @endpoint
    def spins(self) -> int:
        breakpoint()
        turns = self._spin()
        return turns

    def _spin(self) -> int:
        while self.go:
            self.turns += 1
        return 7

    @endpoint
    def stays(self, value: int) -> int:
        breakpoint()
        return value + 1

    @endpoint
    def pid(self) -> int:
        return 1


class AsyncAgain(Actor):
    """The same, with an event loop."""

    def __init__(self) -> None:
        self.pair = socket.socketpair()
        self.event: Any = None
        self.go = True

    @endpoint
    async def waits(self) -> int:
        self.event = asyncio.Event()
        breakpoint()
        await self.event.wait()
        return 3

    @endpoint
    async def blocks(self) -> int:
        breakpoint()
        got = self.pair[0].recv(1)
        return len(got)

    @endpoint
    async def spins(self) -> int:
        breakpoint()
        while self.go:
            pass
        return 4

    @endpoint
    async def stays(self, value: int) -> int:
        breakpoint()
        return value + 1


def type_in(me: Person, line: str) -> None:
    """Type a line at the attached rank without waiting for what becomes of it."""
    me.client.ask(asked("debug.send", line=line))


def steps_on(me: Person, line: str, there: str) -> None:
    """Type a line that leads into a call that does not return; ``there``: how `where` shows that it is in there."""
    type_in(me, line)
    wait_until(lambda: not me.rows(), WAIT)
    me.until("where worker", there)


def works_on(me: Person, line: str) -> None:
    """Type a line that does not come to its end."""
    type_in(me, line)
    wait_until(lambda: me.rows()[0]["note"].startswith(("running '", 'running "')), WAIT)
    if "await" not in line:  # what a line awaits is not shown; it is broken also where it has not begun to
        me.until("where worker", "  <st")  # in <stdin> or <string>


def interrupt(me: Person) -> str:
    """Interrupt the rank; return what is shown, and be at its prompt again."""
    shown = me("interrupt worker")
    me.rows()  # its answer comes after what the attached prompt is told
    assert me.prompt.startswith("(worker 0 ")
    return shown


def line_of(me: Person) -> str:
    return me("l .").rpartition("->\t")[2].splitlines()[0].strip()


@pytest.mark.parametrize(
    ("name", "source", "function", "result"),
    [
        ("receive", "got = self.pair[0].recv(1)", "receive", 2),
        ("inner", "self.pair[0].recv(1)", "_inner", 5),
    ],
)
def test_a_stepped_call_that_blocks_is_interrupted(name: str, source: str, function: str, result: int) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Again).get(WAIT)
    answer = getattr(worker, name).call_one()
    with attached("worker", 0) as me:
        assert "got = " in me("n")
        for step in ("n", "r", "s"):
            steps_on(me, step, "in self.pair.recv")
            shown = interrupt(me)
            assert f"{function}()" in shown
            assert source in shown
            assert "self" in me("p list(locals())")
            assert line_of(me) == source
        me("!self.pair[1].send(b'x')")
        assert "return" in me("n")
        me("c")
        assert answer.get(WAIT) == result
        assert me("list") == "nothing is stopped\n"


def test_a_call_that_computes_is_stepped_over_and_interrupted() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Again).get(WAIT)
    answer = worker.spins.call_one()
    with attached("worker", 0) as me:
        me("n")
        steps_on(me, "n", IN_SPIN)
        assert "_spin()" in interrupt(me)
        me("!self.go = False")
        assert "return turns" in me("r") + me("n") + me("n")
        me("c")
        assert answer.get(WAIT) == 7


@pytest.mark.slow
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("name", "there", "free", "result"),
    [
        ("waits", "in Future", "self.event.set()", 3),
        ("blocks", "in self.pair.recv", "self.pair[1].send(b'x')", 1),
        ("spins", "spins  debug/", "self.go = False", 4),
    ],
)
def test_an_async_endpoint_is_stepped_and_interrupted(
    name: str, there: str, free: str, result: int, first: bool
) -> None:
    procs = proc_mesh(gpus=1)
    if first:
        if not LATER or name == "blocks":
            pytest.skip("a thread that only sys.monitoring reaches, once its call has returned")
        procs.spawn("first", Again).get(WAIT)
    worker = procs.spawn("worker", AsyncAgain).get(WAIT)
    answer = getattr(worker, name).call_one()
    with attached("worker", 0) as me:
        me("n")
        for _ in range(2):
            steps_on(me, "unt 1000" if name == "spins" else "n", there)
            shown = interrupt(me)
            assert f"{name}()" in shown
            assert "self" in me("p list(locals())")
        me(f"!{free}")
        if name != "spins":
            assert f"{name}()" in me("n")
        me("c")
        assert answer.get(WAIT) == result


@pytest.mark.skipif(not LATER, reason="Python 3.11 does not reach a further thread")
def test_a_further_thread_that_steps_is_interrupted() -> None:
    procs = proc_mesh(gpus=1)
    procs.spawn("first", Again).get(WAIT)
    worker = procs.spawn("worker", Again).get(WAIT)
    answer = worker.spins.call_one()
    with attached("worker", 0) as me:
        me("n")
        for _ in range(2):
            steps_on(me, "n" if _ == 0 else "r", IN_SPIN)
            shown = interrupt(me)
            assert "_spin()" in shown, shown
        me("!self.go = False")
        me("c")
        assert answer.get(WAIT) == 7


LINES = ["while True: pass", "p [None for _ in iter(int, 1)]", "time.sleep(1000)", "await asyncio.sleep(1000)"]


@pytest.mark.slow
@pytest.mark.parametrize("actor", [Again, AsyncAgain])
@pytest.mark.parametrize("line", LINES)
def test_a_line_that_does_not_end_is_broken(actor: type[Any], line: str) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", actor).get(WAIT)
    answer = worker.stays.call_one(3)
    with attached("worker", 0) as me:
        me("import time, asyncio")
        for _ in range(2):
            works_on(me, line)
            assert interrupt(me).strip().endswith("*** KeyboardInterrupt")
            assert me("p value") == "3\n"
        assert me.rows()[0]["function"] == "stays"
        assert "return value + 1" in me("n")
        assert me("p value, 'go on'") == "(3, 'go on')\n"
        me("c")
        assert answer.get(WAIT) == 4


@pytest.mark.slow
@pytest.mark.parametrize("actor", [Again, AsyncAgain])
def test_a_line_on_a_further_thread_is_broken(actor: type[Any]) -> None:
    procs = proc_mesh(gpus=1)
    procs.spawn("first", Again).get(WAIT)
    worker = procs.spawn("worker", actor).get(WAIT)
    answer = worker.stays.call_one(3)
    with attached("worker", 0) as me:
        for line in LINES[:2] * 5:
            works_on(me, line)
            assert interrupt(me).strip().endswith("*** KeyboardInterrupt")
        assert me("p value") == "3\n"
        me("c")
        assert answer.get(WAIT) == 4


@pytest.mark.slow
def test_an_interrupt_never_reaches_the_endpoint() -> None:
    procs = proc_mesh(gpus=1)
    meshes = [procs.spawn(name, Again).get(WAIT) for name in ("first", "worker")]
    with person() as me:
        for name, mesh in zip(("first", "worker"), meshes, strict=True):
            answer = mesh.stays.call_one(3)
            me.wait(name)
            me(f"attach {name} 0")
            for turn in range(60):
                type_in(me, f"sum(range({turn * 3000}))")
                me.client.ask(asked("debug.interrupt", actor=name))
                wait_until(lambda: me.rows()[0]["note"] == "", WAIT)
            me("detach")
            me("continue")
            assert answer.get(WAIT) == 4


class Events:
    """A trace function of the user's: coverage of a kind."""

    def __init__(self) -> None:
        self.lines: list[int] = []

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_name in ("traced", "helper") and event == "line":
            self.lines.append(frame.f_lineno - frame.f_code.co_firstlineno)
        return self if frame.f_code.co_name in ("traced", "helper") else None


class Limits(Actor):
    """What the user has set for a thread stays."""

    def __init__(self) -> None:
        self.pair = socket.socketpair()

    @endpoint
    def traced(self, how: str) -> Any:
        events = Events()
        sys.settrace(events)
        sys._getframe().f_trace = events
        if how == "breakpoint":
            breakpoint()
        elif how == "interrupt":
            self.pair[0].recv(1)
        if how == "raise":
            raise ValueError("traced")
        del events.lines[:]
        one = 1
        self.helper()
        two = one
        kept = sys.gettrace() is events
        sys.settrace(None)
        return kept, len(events.lines), two

    def helper(self) -> int:
        three = 3
        return three

    @endpoint
    def trace(self) -> str:
        function = sys.gettrace()
        sys.settrace(None)
        return type(function).__name__

    @endpoint
    def deep(self, room: int, how: str) -> Any:
        limit = sys.getrecursionlimit()
        frame: Any = sys._getframe()
        depth = 0
        while frame is not None:
            frame, depth = frame.f_back, depth + 1
        found = self._down(limit - depth - room, how)
        return found, holds_within(WAIT, lambda: sys.getrecursionlimit() == limit)  # it may be lowered a little later

    def _down(self, left: int, how: str) -> Any:
        if left > 0:
            return self._down(left - 1, how)
        if how == "breakpoint":
            breakpoint()
        else:
            self.pair[0].recv(1)
        return "went on"

    @endpoint
    def no_files(self) -> str:
        import os
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            breakpoint()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return f"went on in {os.getpid() > 0}"

    def __cleanup__(self, exc: Any) -> None:
        if getattr(self, "stop_at_the_end", False):
            breakpoint()

    @endpoint
    def stop_later(self) -> None:
        self.stop_at_the_end = True

    @endpoint
    def wrong(self, how: str) -> None:
        secret = 3  # noqa: F841
        if how == "syntax":
            raise SyntaxError("x", (1, 2, 3, 4))  # type: ignore[arg-type]
        if how == "notes":
            error = ValueError("noted")
            error.__notes__ = 3  # type: ignore[assignment]
            raise error
        raise Hostile("text")


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def attach_where_it_stands(me: Person, how: str) -> None:
    """Be at the prompt of a rank that stopped by itself, or that is interrupted in a call which can go on then."""
    if how == "interrupt":
        wait_until(lambda: "recv" in me("where"), WAIT)
        me("interrupt worker")
    me.wait("worker")
    me("attach worker 0")
    if how == "interrupt":
        me("!self.pair[1].send(b'x')")


@pytest.mark.slow
@pytest.mark.parametrize("stepping", [False, True])
@pytest.mark.parametrize("how", ["breakpoint", "interrupt"])
def test_the_users_trace_function_is_in_force_again(how: str, stepping: bool) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Limits).get(WAIT)
    expected = worker.traced.call_one("none").get(WAIT)
    assert expected[0]
    answer = worker.traced.call_one(how)
    with person() as me:
        attach_where_it_stands(me, how)
        if stepping:
            assert "if how ==" in me("n")
        me("c")
        assert answer.get(WAIT) == expected


def test_the_users_trace_function_after_an_exception() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Limits).get(WAIT)
    with person() as me:
        assert "on" in me("postmortem on")
        answer = worker.traced.call_one("raise")
        me.wait("worker")
        me("attach worker 0")
        me("c")
        with pytest.raises(ActorError, match="traced"):
            answer.get(WAIT)
        assert worker.trace.call_one().get(WAIT) == "Events"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["breakpoint", "interrupt"])
@pytest.mark.parametrize("room", [25, 60, 200])
def test_a_stop_near_the_recursion_limit(how: str, room: int) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Limits).get(WAIT)
    answer = worker.deep.call_one(room, how)
    with person() as me:
        attach_where_it_stands(me, how)
        assert me("p left") == "0\n"
        assert "return" in me("n")
        me("c")
        assert answer.get(WAIT) == ("went on", True)


def test_a_rank_without_free_files_goes_on() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Limits).get(WAIT)
    assert worker.no_files.call_one().get(WAIT) == "went on in True"
    with person() as me:
        wait_until(lambda: "the debugger cannot be opened here" in me("logs worker"), WAIT, me("logs worker"))
        answer = worker.deep.call_one(300, "breakpoint")
        me.wait("worker")  # and it is tried again
        me("continue")
        answer.get(WAIT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "headline"), [("syntax", "SyntaxError: x"), ("notes", "ValueError: noted"), ("str", "Hostile: ")]
)
def test_exceptions_that_cannot_be_shown(how: str, headline: str) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Limits).get(WAIT)
    with person() as me:
        assert "on" in me("postmortem on")
        for _ in range(2):
            answer = worker.wrong.call_one(how)
            me.wait("worker")
            me("attach worker 0")
            shown = me.terminal.shown
            assert headline.partition(":")[0] in shown
            assert me("p secret") == "3\n"
            for command in ("n", "next", "s", "step", "r", "return", "unt", "until", "j 3", "jump 3"):
                assert me(command) == (
                    "*** no code is left to step through: the endpoint has raised; "
                    "`c` passes the exception to the caller\n"
                )
            me("c")
            with pytest.raises(ActorError):
                answer.get(WAIT)
    assert worker.trace.call_one().get(WAIT) == "NoneType"


def test_a_stop_in_cleanup_is_shown_in_the_whole_mesh() -> None:
    procs = proc_mesh(hosts=1, gpus=2)
    worker = procs.spawn("worker", Limits).get(WAIT)
    worker.stop_later.call().get(WAIT)
    with person() as me:
        stopping = threading.Thread(target=lambda: worker.stop().get(WAIT))
        stopping.start()
        wait_until(lambda: len(me.rows()) == 2, WAIT)
        assert [row["coords"] for row in me.rows()] == [{"hosts": 0, "gpus": 0}, {"hosts": 0, "gpus": 1}]
        me("continue")
        stopping.join(WAIT)
