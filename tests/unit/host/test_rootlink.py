"""What an agent keeps for a root that does not read: bounded, counted, and nothing lost that must not be."""

from __future__ import annotations

import selectors
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from meshrt.hooks.fate import Fate
from meshrt.host.rootlink import RootLink
from meshrt.transport.dropping import EVENT_BYTES, WAIT_BYTES
from meshrt.transport.link import Link
from meshrt.wire.control import Message, control_frame
from meshrt.wire.frames import Frame, control_decoder
from meshrt.wire.tree import Answer, Event, Gone, Pulse, Request, Warn
from tests.support.control import fields_of, plain

ADDRESS = ("m", 3)
LARGE = "x" * 100_000
#: What a socket holds, and one message.
SLACK = 4 << 20


class Ends:
    """An agent's link, and the root at its other end, which reads when the test says so."""

    def __init__(self) -> None:
        ours, self.root = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        self.room = 0
        self.link = RootLink(Link(ours, control_decoder()), self.selector, self._received, self._on_room)
        self._ours = ours
        self.root.setblocking(False)
        self._decoder = control_decoder()

    def pass_on(self, message: Message) -> None:
        """Pass on a message of a rank."""
        (frame,) = control_decoder().receive_data(control_frame(message))
        self.link.pass_on(message, frame.payload, ADDRESS)

    def _received(self, _frame: Frame) -> None:
        raise AssertionError("the root says nothing")

    def _on_room(self) -> None:
        self.room += 1

    def read(self) -> list[tuple[Any, dict[str, Any]]]:
        """Be a root that goes on: return all that it is told."""
        found: list[tuple[Any, dict[str, Any]]] = []
        while True:
            for key, events in self.selector.select(0):
                key.data(events)
            try:
                data = self.root.recv(1 << 20)
            except BlockingIOError:
                if not self.link._link.backlog:
                    return found
                continue
            found += [(frame.header, fields_of(frame.payload)) for frame in self._decoder.receive_data(data)]

    @property
    def waiting(self) -> int:
        return self.link._link.backlog_bytes

    def close(self) -> None:
        self.selector.close()
        self._ours.close()
        self.root.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    found = Ends()
    yield found
    found.close()


def test_events_that_are_too_many_are_left_out_and_counted(ends: Ends) -> None:
    sent = 1000
    for number in range(sent):
        event = "unhandled" if number % 4 else "failure.record"
        ends.pass_on(Event(event, {"number": number, "text": LARGE}))
    assert ends.waiting < EVENT_BYTES + SLACK
    told = ends.read()
    came = [message["body"]["number"] for _, message in told if message["t"] == "ev"]
    assert came == list(range(len(came))) and came, "the first ones are kept, in order"
    counts = Counter(message["ev"] for _, message in told if message["t"] == "ev")
    (dropped,) = [message for _, message in told if message["t"] == "dropped"]
    ((mesh, rank, events),) = dropped["ranks"]
    assert (mesh, rank) == ADDRESS
    assert counts + Counter(events) == Counter({"unhandled": 750, "failure.record": 250})
    assert ends.room
    assert not [message for _, message in ends.read() if message["t"] == "dropped"], "it is said once"


def test_log_records_leave_room_for_events_that_are_rarer(ends: Ends) -> None:
    for _ in range(1000):
        ends.pass_on(Event("log", {"text": LARGE}))
    assert ends.waiting < EVENT_BYTES
    ends.pass_on(Event("failure.record", {"text": LARGE}))
    told = [message for _, message in ends.read()]
    kept = Counter(message["ev"] for message in told if message["t"] == "ev")
    assert kept["failure.record"] == 1 and 0 < kept["log"] < 1000
    assert told[-1]["ranks"] == [[*ADDRESS, {"log": 1000 - kept["log"]}]]


def test_printed_lines_leave_room_for_events(ends: Ends) -> None:
    for _ in range(1000):
        ends.link.output(ADDRESS, False, [("", LARGE)])
    assert ends.waiting < EVENT_BYTES
    ends.pass_on(Event("failure.record", {"text": LARGE}))
    told = [message for _, message in ends.read()]
    printed = sum(len(message["lines"]) for message in told if message["t"] == "output")
    assert [message["ev"] for message in told if message["t"] == "ev"] == ["failure.record"]
    assert 0 < printed < 1000
    assert told[-1]["text"] == f"{1000 - printed} lines of output not shown: the output was too fast; see the files"


def test_a_count_that_is_too_large_for_a_message_costs_the_agent_nothing(ends: Ends) -> None:
    """A rank may claim that it has left out as many events as a message can say, again and again."""
    while not ends.waiting:
        ends.link.tell(Warn(LARGE))
    for _ in range(3):
        ends.link.note_dropped(ADDRESS, {"unhandled": (1 << 64) - 1})
    (dropped,) = [message for _, message in ends.read() if message["t"] == "dropped"]
    assert dropped["ranks"][0][2]["unhandled"] > 1 << 60


def test_what_must_not_be_lost_comes_in_order_however_much_waits(ends: Ends) -> None:
    messages: list[Message] = [
        Answer(1, {"text": LARGE}),
        Request(1, "mesh.watch", {"text": LARGE}),
        Event("held", {"held": True, "text": LARGE}),
    ]
    sent: list[Message] = []
    while not ends.link.full:
        sent.append(messages[len(sent) % len(messages)])
        ends.pass_on(sent[-1])
    assert ends.waiting > WAIT_BYTES
    gone = Gone("m", 3, Fate("died"))
    ends.link.tell(gone)
    told = [message for _, message in ends.read()]
    assert told == [plain(message) for message in [*sent, gone]]
    assert ends.room and not ends.link.full


def test_of_what_counts_until_the_next_one_only_the_last_waits(ends: Ends) -> None:
    def pulse(rank: int, state: str) -> Pulse:
        return Pulse("m", rank, state, LARGE)

    ends.link.tell_latest(pulse(0, "stopped"), ("m", 0))
    while ends.waiting <= EVENT_BYTES:
        ends.pass_on(Event("unhandled", {"text": LARGE}))
    before = ends.waiting
    for _ in range(100):
        for state in ("busy", "answering", "stopped"):
            ends.link.tell_latest(pulse(1, state), ("m", 1))
        ends.link.tell_latest(pulse(0, "answering"), ("m", 0))
    assert ends.waiting == before
    told = [(message["rank"], message["state"]) for _, message in ends.read() if message["t"] == "pulse"]
    assert told == [(0, "stopped"), (1, "stopped"), (0, "answering")]


def test_what_ranks_have_left_out_themselves_is_told_at_once_where_nothing_waits(ends: Ends) -> None:
    ends.link.note_dropped(ADDRESS, {"unhandled": 5})
    assert ends.read() == [(None, {"t": "dropped", "ranks": [["m", 3, {"unhandled": 5}]]})]


def test_empty_lines_are_not_all_told_in_one_message(ends: Ends) -> None:
    ends.link.output(ADDRESS, False, [("", "")] * 10_000)
    told = [message["lines"] for _, message in ends.read()]
    assert sum(map(len, told)) == 10_000 and max(map(len, told)) <= 2000
