"""Requests find their answers, each once; answers are given once, and never too long."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.errors import MeshError, UsageError
from meshrt.hooks.operations import Data
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import CONTROL_MAX
from meshrt.wire.peer import DataReply, Reply, Requests
from meshrt.wire.tree import Answer, Later, Refusal, Request


class Tree:
    """Takes messages, and calls later what is to be called later."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.later: list[Callable[[], None]] = []

    def send(self, message: Message) -> None:
        control_frame(message)
        self.sent.append(message)

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        self.later.append(function)


def test_the_first_answer_counts() -> None:
    tree = Tree()
    reply = Reply(7, tree.send)
    reply({"a": 1}, "")
    reply({"a": 2}, "")
    reply(None, "no")
    assert tree.sent == [Answer(7, {"a": 1})]


def test_a_refusal_and_an_answer_that_is_too_long() -> None:
    tree = Tree()
    Reply(1, tree.send)(None, "no")
    Reply(2, tree.send)({"a": "x" * CONTROL_MAX}, "")
    refused, long = tree.sent
    assert refused == Refusal(1, "no")
    assert isinstance(long, Refusal) and "too long" in long.why


def test_nobody_wants_an_answer() -> None:
    tree = Tree()
    reply = Reply(0, tree.send)
    reply.wait(tree.call_later)
    reply({}, "")
    assert not tree.sent and not tree.later


def test_a_host_agent_is_told_that_it_takes_a_while() -> None:
    tree = Tree()
    slow, quick, of_the_root = Reply(-1, tree.send), Reply(-2, tree.send), Reply(3, tree.send)
    for reply in (slow, quick, of_the_root):
        reply.wait(tree.call_later)
    quick({}, "")
    for function in tree.later:
        function()
    assert tree.sent == [Answer(-2, {}), Later(-1)]
    slow({}, "")
    assert tree.sent[-1] == Answer(-1, {})


def test_a_host_agent_is_told_at_once_of_what_has_to_be_loaded_first() -> None:
    tree = Tree()
    for number in (-1, 0, 3):
        Reply(number, tree.send).begins()
    assert tree.sent == [Later(-1)] and not tree.later


def test_a_refusal_has_the_class_of_its_error() -> None:
    tree = Tree()
    Reply(1, tree.send).fail(UsageError("no such rank"))
    Reply(2, tree.send).fail(KeyError("x"))
    assert tree.sent == [Refusal(1, "no such rank", "UsageError"), Refusal(2, "KeyError: 'x'", "MeshError")]


# ---- the side that asks


class Asking:
    """The requests to one peer, and what came of them."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self.results: dict[str, list[tuple[Any, str]]] = {}
        self.requests = Requests(self.sent.append)

    def ask(self, operation: str) -> int:
        def answered(body: Any, error: Exception | None) -> None:
            said = "" if error is None else f"{type(error).__name__}: {error}"
            self.results.setdefault(operation, []).append((body, said))

        return self.requests.ask(operation, {"of": operation}, answered)


@given(st.lists(st.tuples(st.sampled_from(["answer", "refuse", "forget", "fail"]), st.integers(1, 4)), max_size=12))
def test_each_request_has_one_result_whatever_comes(events: list[tuple[str, int]]) -> None:
    asking = Asking()
    expected: dict[str, list[tuple[Any, str]]] = {}
    open_requests = {asking.ask(name): name for name in "abcd"}
    assert asking.sent == [Request(number, name, {"of": name}) for number, name in open_requests.items()]
    for what, number in events:
        name = open_requests.get(number)
        match what:
            case "answer":
                asking.requests.received(Answer(number, {"x": number}))
                result: tuple[Any, str] = ({"x": number}, "")
            case "refuse":
                asking.requests.received(Refusal(number, "no", "UsageError"))
                result = (None, "UsageError: no")
            case "forget":
                asking.requests.forget(number)
                open_requests.pop(number, None)
                continue
            case _:
                asking.requests.fail(ConnectionError("it has ended"))
                for each in open_requests.values():
                    expected.setdefault(each, []).append((None, "ConnectionError: it has ended"))
                open_requests.clear()
                continue
        if name is not None:
            del open_requests[number]
            expected.setdefault(name, []).append(result)
    assert asking.results == expected


def test_an_answer_without_a_body_is_an_empty_one() -> None:
    asking = Asking()
    asking.requests.received(Answer(asking.ask("a"), None))
    assert asking.results == {"a": [({}, "")]}


def test_what_cannot_be_sent_is_not_open() -> None:
    def send(_request: Request) -> None:
        raise ConnectionError("it has ended")

    results: list[Any] = []
    requests = Requests(send)
    with pytest.raises(ConnectionError):
        requests.ask("a", {}, lambda *result: results.append(result))
    requests.fail(MeshError("later"))
    assert results == []


def test_the_end_of_a_connection_while_a_request_is_sent_is_told_once() -> None:
    results: list[Any] = []

    def send(_request: Request) -> None:
        requests.fail(ConnectionError("it has ended"))
        raise ConnectionError("it has ended")

    requests = Requests(send)
    requests.ask("a", {}, lambda body, error: results.append((body, str(error))))
    assert results == [(None, "it has ended")]


def test_tables_of_requests_may_share_their_numbers() -> None:
    numbers = itertools.count(5)
    first, second = Requests(lambda _: None, numbers), Requests(lambda _: None, numbers)
    assert [table.ask("a", {}, lambda *_: None) for table in (first, second, first)] == [5, 6, 7]


class Pid(Data, frozen=True):
    pid: int


def test_an_answer_with_a_type_is_sent_as_its_fields() -> None:
    sent: list[Message] = []
    reply = DataReply[Pid](Reply(3, sent.append))
    reply(Pid(77))
    reply.fail(ValueError("too late"))
    DataReply[Pid](Reply(4, sent.append)).fail(UsageError("no such rank"))
    assert sent == [Answer(3, {"pid": 77}), Refusal(4, "no such rank", "UsageError")]
