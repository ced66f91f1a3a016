"""Answers to requests of the control tree: once, from any thread, and never too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meshrt.actor.replies import Reply
from meshrt.wire.frames import CONTROL_MAX
from meshrt.wire.messages import control_frame


class Tree:
    """Takes messages, and calls later what is to be called later."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.later: list[Callable[[], None]] = []

    def send(self, message: dict[str, Any]) -> None:
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
    assert tree.sent == [{"t": "ok", "id": 7, "body": {"a": 1}}]


def test_a_refusal_and_an_answer_that_is_too_long() -> None:
    tree = Tree()
    Reply(1, tree.send)(None, "no")
    Reply(2, tree.send)({"a": "x" * CONTROL_MAX}, "")
    assert tree.sent[0] == {"t": "no", "id": 1, "why": "no"}
    assert tree.sent[1]["t"] == "no" and "too long" in tree.sent[1]["why"]


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
    assert tree.sent == [{"t": "ok", "id": -2, "body": {}}, {"t": "later", "id": -1}]
    slow({}, "")
    assert tree.sent[-1] == {"t": "ok", "id": -1, "body": {}}


def test_a_host_agent_is_told_at_once_of_what_has_to_be_loaded_first() -> None:
    tree = Tree()
    for number in (-1, 0, 3):
        Reply(number, tree.send).begins()
    assert tree.sent == [{"t": "later", "id": -1}] and not tree.later
