"""Cancellations and ends of graces on a link of their own: which actor they end, and which they leave alone."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from meshrt.actor.cancelling import Cancelling
from meshrt.transport.link import Link
from meshrt.wire.frames import Frame
from meshrt.wire.handshake import Identity
from meshrt.wire.messages import CANCEL, CUT, STOP

CALLER = Identity(1, 2, 3)


class Mailbox:
    """An actor that runs a call."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def cancel_call(self, caller: Identity, call_id: int) -> str:
        self.asked.append((caller, call_id))
        return f"call {call_id}"

    def cut(self) -> str | None:
        self.asked.append("cut")
        return "what runs"


class Bench:
    """`Cancelling`, and the caller at the other end of a socketpair."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.interrupted: list[Any] = []
        self.over: list[tuple[str, Identity, int]] = []
        self.selector = selectors.DefaultSelector()
        mailboxes: Any = {"actor": self.mailbox}
        self.cancelling = Cancelling(
            self.selector,
            mailboxes,
            self._interrupt,
            lambda *stop: stop in self.over,
        )
        self.near, self.far = socket.socketpair()

    def _interrupt(self, _mailbox: Any, call: Any) -> bool:
        self.interrupted.append(call)
        return True

    def send(self, kind: int, *header: object) -> bool:
        """Send it what was read from a caller; returns whether that is still served."""
        link = Link(self.near)
        link.client = CALLER
        self.cancelling.add(link, [Frame(kind, [*header], b"")])
        return not link.closed


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.selector.close()
    made.near.close()
    made.far.close()


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_call_is_interrupted_only_if_its_caller_has_asked_for_that(bench: Bench, interrupt: bool) -> None:
    assert bench.send(CANCEL, 7, interrupt, "actor")
    assert bench.mailbox.asked == [(CALLER, 7)] and bench.interrupted == (["call 7"] if interrupt else [])


def test_the_end_of_a_grace_ends_what_runs(bench: Bench) -> None:
    assert bench.send(CUT, 7, "actor")
    assert bench.mailbox.asked == ["cut"] and bench.interrupted == ["what runs"]


def test_a_stop_that_was_answered_does_not_end_the_next_actor_of_the_name(bench: Bench) -> None:
    bench.over = [("actor", CALLER, 7)]
    assert bench.send(CUT, 7, "actor") and bench.mailbox.asked == []


@pytest.mark.parametrize("message", [(CUT, 7, "other"), (CANCEL, 7, True, "other")])
def test_an_actor_that_is_gone_is_none(bench: Bench, message: tuple[Any, ...]) -> None:
    assert bench.send(*message) and bench.mailbox.asked == []


@pytest.mark.parametrize(
    "message", [(CUT, 7), (CUT, 7, ["actor"]), (CUT,), (CANCEL, 7, True), (CANCEL, "7", True, "actor"), (STOP, 7)]
)
def test_the_sender_of_an_invalid_message_is_cut_off(bench: Bench, message: tuple[Any, ...]) -> None:
    assert not bench.send(*message) and bench.mailbox.asked == []
