"""The terminal's connection: requests with types and by name, and reports that come in any order."""

from __future__ import annotations

import _thread
import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from meshrt.debug.operations import AttachedReport, Count, Detach, JobReport, Notice, Send, Sent
from meshrt.debug.prompt.client import LOOK_SECONDS, Client, next_of
from meshrt.errors import ProtocolError
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Data, Operation, Report, body_of
from meshrt.inspect.operations import ListRanks

A = TypeVar("A", bound=Data)


class FakeConnection:
    """A program that answers what a table says."""

    pid = 7

    def __init__(self, on_event: Callable[[str, Body], None], on_close: Callable[[], None]) -> None:
        self.on_event = on_event
        self.on_close = on_close
        self.asked: list[tuple[str, Body]] = []
        self.answers: dict[str, Body] = {
            "debug.hello": {"pid": 7, "argv": ["a.py"], "stops": ["one"], "stopped": 1, "resumed": 2},
            "debug.send": {"seq": 4},
            "debug.detach": {},
            "inspect.list": {"rows": [], "left_out": 0, "state": "all"},
        }

    def ask(self, operation: Operation[A], timeout: float | None = 10.0) -> A:
        self.asked.append((operation.name(), body_of(operation)))
        return operation.read_answer(self.answers[operation.name()])

    def close(self) -> None:
        self.on_close()

    def tell(self, report: Report) -> None:
        self.on_event(report.name(), body_of(report))


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection(lambda event, body: None, lambda: None)


@pytest.fixture
def client(connection: FakeConnection) -> Client:
    def connect(on_event: Callable[[str, Body], None], on_close: Callable[[], None]) -> FakeConnection:
        connection.on_event, connection.on_close = on_event, on_close
        return connection

    return Client(connect, person=True)


def test_the_greeting_is_taken_over(client: Client, connection: FakeConnection) -> None:
    client.greet()
    client.greet()
    assert (client.stops, client.stopped, client.resumed, client.pid) == (["one"], 1, 2, 7)
    assert connection.asked == [("debug.hello", {"typed": "", "person": True, "listens": False})]


def test_the_debugger_is_greeted_by_the_first_request_that_needs_it(client: Client, connection: FakeConnection) -> None:
    client.ask(ListRanks(state="all"))
    assert [name for name, _ in connection.asked] == ["inspect.list"]
    client.ask(Detach())
    client.ask(Detach())
    assert [name for name, _ in connection.asked[1:]] == ["debug.hello", "debug.detach", "debug.detach"]
    assert client.stops == ["one"]


def test_a_request_says_what_was_typed(client: Client, connection: FakeConnection) -> None:
    client.greet()
    client.typed = "n"
    assert client.ask(Send("n", lines=3)) == Sent(4)
    assert connection.asked[1:] == [("debug.send", {"typed": "n", "line": "n", "lines": 3})]


def test_an_answer_of_another_version_is_refused(client: Client, connection: FakeConnection) -> None:
    connection.answers["debug.send"] = {"seq": "four"}
    with pytest.raises(ProtocolError, match="the answer to debug"):
        client.ask(Send("n"))
    client.ask(Detach())


def test_reports_are_sorted(client: Client, connection: FakeConnection) -> None:
    client.greet()
    changes: list[int] = []
    client.on_change = lambda: changes.append(client.stopped)
    connection.tell(Notice("early"))
    read: list[str] = []
    client.read_notices(read.append)
    connection.tell(Notice("late"))
    event = AttachedReport("printed", "work", "text")
    connection.tell(event)
    connection.tell(Count(5, 0))
    assert (read, client.attached.get_nowait(), changes) == (["early", "late"], event, [1, 5])


def test_reports_of_a_job_that_is_forgotten_are_dropped(client: Client, connection: FakeConnection) -> None:
    report = JobReport([], {"a": [1]}, done=False, job=3)
    connection.tell(report)
    assert client.reports(3).get_nowait() == report
    client.forget(3)
    connection.tell(report)
    with pytest.raises(queue.Empty):
        client.reports(3).get_nowait()


def test_the_end_of_the_program_ends_every_wait(client: Client, connection: FakeConnection) -> None:
    before = client.reports(3)
    client.close()
    assert client.closed()
    assert (before.get_nowait(), client.reports(4).get_nowait(), client.attached.get_nowait()) == (None, None, None)


def test_ctrl_c_that_comes_just_before_a_wait_begins_ends_it() -> None:
    """Such a signal is noted, and wakes nobody: so does `interrupt_main`."""
    reports, seen, late = queue.SimpleQueue[str](), threading.Event(), list[str]()

    def interrupt() -> None:
        time.sleep(LOOK_SECONDS)  # it may come before the wait, within it, or between two of its parts
        _thread.interrupt_main()
        if not seen.wait(20):
            late.append("it was not seen")
            reports.put("an answer")

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        next_of(reports, time.monotonic() + 60)
    seen.set()
    thread.join()
    assert not late


def test_what_has_come_is_taken_also_when_the_wait_is_over() -> None:
    reports = queue.SimpleQueue[str]()
    with pytest.raises(queue.Empty):
        next_of(reports, time.monotonic() + 2 * LOOK_SECONDS)
    reports.put("an answer")
    assert next_of(reports, 0.0) == "an answer"
