"""The inbox of a channel: which message goes to which receiver, and who is told of its end."""

from __future__ import annotations

import selectors
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.actor.inboxes import Arrived, Inbox, PortLinks
from meshrt.wire.frames import Frame
from meshrt.wire.messages import PORT


class Taker:
    """Waits for a message."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def arrived(self, message: Arrived) -> None:
        self.got.append(message.frame.header[0])

    def closed(self) -> None:
        self.got.append("closed")


def message(number: int, taken: list[int] | None = None) -> Arrived:
    frame = Frame(PORT, [number, "p", [], False, 0, 0], b"")
    return Arrived(frame, None if taken is None else lambda: taken.append(number))


@pytest.mark.slow
@given(st.lists(st.sampled_from(["put", "take", "take and drop"]), max_size=30))
def test_messages_go_in_order_to_the_oldest_receiver_that_is_still_used(steps: list[str]) -> None:
    inbox, takers, dropped, taken = Inbox(once=False), list[Taker](), list[Any](), list[int]()
    count = 0
    for step in steps:
        if step == "put":
            assert inbox.put(message(count, taken))
            count += 1
            continue
        taker = Taker()
        inbox.give_to(taker)
        if step == "take":
            takers.append(taker)
        else:
            dropped += taker.got  # it is collected now; what it had got before counts
        del taker
    got = [number for taker in takers for number in taker.got]
    assert sorted(got + dropped) == list(range(len(got) + len(dropped)))
    assert got == sorted(got) and taken == list(range(len(taken))) and len(taken) == len(got) + len(dropped)
    assert all(len(taker.got) <= 1 for taker in takers)


def test_its_end_is_told_to_those_that_wait_and_those_that_asked() -> None:
    inbox, waits, told, taken = Inbox(once=False), Taker(), list[str](), list[int]()
    inbox.when_closed(lambda: told.append("first"))
    inbox.give_to(waits)
    inbox.put(message(1, taken))
    inbox.put(message(2, taken))
    inbox.close()
    inbox.close()
    late = Taker()
    inbox.give_to(late)
    inbox.when_closed(lambda: told.append("late"))
    assert (waits.got, late.got, told) == ([1], ["closed"], ["first", "late"])
    assert taken == [1, 2]  # its sender does not wait for what was dropped
    assert not inbox.put(message(3))


def test_an_end_that_is_not_told_is_not_told_later_either() -> None:
    inbox, told = Inbox(once=False), list[str]()
    inbox.when_closed(lambda: told.append("before"))
    inbox.close(tell=False)
    inbox.when_closed(lambda: told.append("behind"))
    assert told == []


def test_one_message_is_kept_when_it_closes_the_inbox() -> None:
    inbox, taker, second = Inbox(once=True), Taker(), Taker()
    assert inbox.put(message(1)) and not inbox.put(message(2))
    inbox.give_to(taker)
    inbox.give_to(second)
    assert (taker.got, second.got) == ([1], ["closed"])


def test_what_is_given_back_comes_first_and_its_sender_is_told_once() -> None:
    inbox, dropped, taken = Inbox(once=False), Taker(), list[int]()
    inbox.put(message(1, taken))
    inbox.put(message(2, taken))
    inbox.give_to(dropped)
    inbox.give_back(message(1, taken))
    waits = [Taker() for _ in range(3)]
    inbox.give_to(waits[0])
    inbox.give_to(waits[1])
    inbox.give_back(message(1, taken))
    inbox.give_to(waits[2])
    assert [taker.got for taker in waits] == [[1], [2], [1]] and taken == [1, 2]
    late = [Taker() for _ in range(2)]
    for taker in late:
        inbox.give_to(taker)
    inbox.give_back(message(3, taken))
    inbox.put(message(4))
    assert [taker.got for taker in late] == [[3], [4]]


def test_what_is_given_back_when_the_inbox_is_closed_is_dropped_unless_it_was_the_only_one() -> None:
    for once, expected in ((False, "closed"), (True, 1)):
        inbox, first, second = Inbox(once=once), Taker(), Taker()
        inbox.put(message(1))
        inbox.give_to(first)
        inbox.close()
        inbox.give_back(message(1))
        inbox.hand_out()
        inbox.give_to(second)
        assert second.got == [expected]


@pytest.mark.parametrize("stopping", [False, True])
def test_a_process_that_ends_tells_nobody_that_its_channels_are_closed(
    stopping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have been open until then, and the sender of a first message does not know yet that the program ends."""
    sent: list[Any] = []

    def call(function: Callable[[], object]) -> None:
        function()

    runtime = SimpleNamespace(inboxes={}, stopping=stopping)
    monkeypatch.setattr("meshrt.actor.inboxes.current_runtime", lambda: runtime)
    with selectors.DefaultSelector() as selector:
        links = PortLinks(selector, call)
        monkeypatch.setattr(links, "send", lambda link, parts: sent.append((link, parts)))
        link: Any = object()
        links._serve(link, Frame(PORT, [1, "p", [], False, False, 7], b""))
    assert [to for to, _parts in sent] == ([] if stopping else [link])
